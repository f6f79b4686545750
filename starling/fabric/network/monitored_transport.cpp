#include "starling/fabric/network/monitored_transport.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "starling/record/log.h"

namespace starling::fabric::network {
namespace {

constexpr std::size_t kMostToDeadPeer = std::size_t{64} << 10;  // bytes of heartbeats
constexpr std::size_t kMostConnectionIds = 1000;
constexpr std::chrono::milliseconds kLingerCheckInterval{2};

// The payload of a heartbeat begins with this; the rows and then the connection ids follow.
struct Heartbeat {
  RankStatus status;
  std::uint32_t rows = 0;
  std::uint32_t connection_ids = 0;
};

struct RowHead {
  std::int32_t of = 0;
  std::uint32_t version = 0;
};

// The head and one PeerState per rank, padded so that the connection ids are aligned.
std::size_t row_bytes(Rank ranks) {
  return sizeof(RowHead) + (static_cast<std::size_t>(ranks) + 7) / 8 * 8;
}

}  // namespace

MonitoredTransport::MonitoredTransport(std::unique_ptr<Transport> transport, std::chrono::nanoseconds bound,
                                       StatusHooks hooks)
    : transport_(std::move(transport)),
      rank_(transport_->rank()),
      size_(transport_->size()),
      bound_(bound),
      hooks_(std::move(hooks)),
      peers_(std::make_unique<Peer[]>(static_cast<std::size_t>(size_))),
      detector_(rank_, size_, std::chrono::duration_cast<FailureDetector::Clock::duration>(bound),
                FailureDetector::Clock::now()),
      sockets_(size_) {}

void MonitoredTransport::start(Transport::Receiver& receiver, Pool& pool) {
  receiver_ = &receiver;
  pool_ = &pool;
  for (Rank r = 0; r < size_; ++r)
    peer(r).relayed_link = std::make_unique<RelayedLink>(
        rank_, r, pool, [this](Rank relay, const Frame& frame, const Slice& payload) {
          transport_->send(relay, frame, payload);
        });
  if (transport_->tolerates_peer_failure()) connection_ids_ = sockets_.find();
  if (connection_ids_.size() > kMostConnectionIds) connection_ids_.clear();
  transport_->start(*this, pool);
  if (size_ > 1) thread_ = std::thread([this] { run(); });
}

bool MonitoredTransport::send(Rank to, const Frame& frame, const Slice& payload) {
  if (frame.kind == FrameKind::leave) {
    const std::lock_guard lock(heartbeat_mutex_);
    leaving_ = true;
  }
  if (peer(to).dead) return false;
  return transport_->send(to, frame, payload) ||
         (transport_->tolerates_peer_failure() && peer(to).relayed_link->send(frame, payload));
}

bool MonitoredTransport::acknowledged(Rank which) const {
  if (peer(which).dead || excluded_) return true;
  return peer(which).relayed ? peer(which).relayed_link->acknowledged() : transport_->acknowledged(which);
}

std::size_t MonitoredTransport::bytes_in_flight(Rank which) const {
  if (peer(which).dead) return 0;
  return peer(which).relayed ? peer(which).relayed_link->bytes() : transport_->bytes_in_flight(which);
}

std::uint64_t MonitoredTransport::bytes_from(Rank which) const {
  return transport_->bytes_from(which) + peer(which).relayed_bytes;
}

void MonitoredTransport::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  if (thread_.joinable()) thread_.join();
  transport_->stop();
}

void MonitoredTransport::send_heartbeats_now() {
  {
    const std::lock_guard lock(mutex_);
    heartbeat_due_ = true;
  }
  woken_.notify_all();
}

void MonitoredTransport::exclude(Rank which) {
  if (which == rank_ || peer(which).dead || peer(which).left) return;
  {
    const std::lock_guard lock(mutex_);
    detector_.exclude(which);
    heartbeat_due_ = true;
  }
  lose(which);
  woken_.notify_all();
}

std::string MonitoredTransport::exclusion_reason() const {
  if (!excluded_) return {};
  const std::lock_guard lock(mutex_);
  return detector_.exclusion_reason();
}

void MonitoredTransport::linger(Deadline until) const {
  for (;;) {
    {
      const std::lock_guard lock(forwarding_mutex_);
      const bool needed = forwarded_from_ >= 0 &&
                          FailureDetector::Clock::now() - forwarded_at_ < bound_ / 5 &&
                          !peer(forwarded_from_).left && !peer(forwarded_from_).dead &&
                          !peer(forwarded_to_).left && !peer(forwarded_to_).dead;
      if (!needed) return;
    }
    if (FailureDetector::Clock::now() > until) return;
    std::this_thread::sleep_for(kLingerCheckInterval);
  }
}

void MonitoredTransport::arrived(Rank from, const Frame& frame, Slice payload) {
  switch (frame.kind) {
    case FrameKind::heartbeat:
      receive_heartbeat(from, payload, true);
      return;
    case FrameKind::relay:
      if (static_cast<Rank>(frame.message.detail) != rank_) {
        forward(frame, payload);
        return;
      }
      {
        const std::lock_guard lock(mutex_);
        relayed_.push_back({frame, std::move(payload)});
      }
      woken_.notify_all();
      return;
    case FrameKind::leave: {
      peer(from).left = true;
      peer(from).relayed_link->drop();
      const std::lock_guard lock(mutex_);
      detector_.left(from);
      break;
    }
    default:
      break;
  }
  if (!peer(from).dead) receiver_->arrived(from, frame, std::move(payload));
}

void MonitoredTransport::forward(Frame frame, const Slice& payload) {
  const auto from = static_cast<Rank>(frame.message.count);
  const auto to = static_cast<Rank>(frame.message.detail);
  if (from < 0 || from >= size_ || to < 0 || to >= size_) return;
  if (++frame.topic > static_cast<std::uint32_t>(size_)) return;  // the frame goes in circles
  {
    const std::lock_guard lock(forwarding_mutex_);
    forwarded_at_ = FailureDetector::Clock::now();
    forwarded_from_ = from;
    forwarded_to_ = to;
  }
  Rank next = to;
  {
    const std::lock_guard lock(mutex_);
    if (!detector_.reaches(to)) next = detector_.next_hop(to);
  }
  if (next >= 0) transport_->send(next, frame, payload);
}

void MonitoredTransport::gone(Rank which) {
  bool decided = peer(which).left || peer(which).dead || !transport_->tolerates_peer_failure();
  if (!decided) {
    const std::lock_guard lock(mutex_);
    decided = stopping_;
    if (!decided) {
      detector_.connection_closed(which, FailureDetector::Clock::now());
      evaluation_due_ = true;
    }
  }
  if (decided)
    receiver_->gone(which);
  else
    woken_.notify_all();
}

void MonitoredTransport::receive_heartbeat(Rank from, const Slice& payload, bool direct) {
  Heartbeat heartbeat;
  if (payload.bytes < sizeof(heartbeat)) return;
  std::memcpy(&heartbeat, payload.data(), sizeof(heartbeat));
  if (heartbeat.rows > static_cast<std::uint32_t>(size_) || heartbeat.connection_ids > kMostConnectionIds ||
      payload.bytes != sizeof(heartbeat) + heartbeat.rows * row_bytes(size_) +
                           heartbeat.connection_ids * sizeof(std::uint64_t))
    return;
  const std::byte* at = payload.data() + sizeof(heartbeat);
  std::vector<StateRow> rows;
  for (std::uint32_t k = 0; k < heartbeat.rows; ++k, at += row_bytes(size_)) {
    RowHead head;
    std::memcpy(&head, at, sizeof(head));
    rows.push_back({head.of, head.version, std::vector<PeerState>(static_cast<std::size_t>(size_))});
    std::memcpy(rows.back().states.data(), at + sizeof(head), static_cast<std::size_t>(size_));
  }
  std::vector<std::uint64_t> ids(heartbeat.connection_ids);
  if (!ids.empty()) std::memcpy(ids.data(), at, ids.size() * sizeof(std::uint64_t));
  bool news = false;
  {
    const std::lock_guard lock(mutex_);
    const auto now = FailureDetector::Clock::now();
    if (direct) detector_.heard(from, now);
    for (const StateRow& row : rows) news = detector_.update_row(row, now) || news;
    if (!ids.empty()) sockets_.set_peer_ids(from, ids);
    evaluation_due_ = evaluation_due_ || news;
    heartbeat_due_ = heartbeat_due_ || news;  // forward the news at once
  }
  hooks_.status_received(from, heartbeat.status);
  if (news) woken_.notify_all();
}

void MonitoredTransport::receive_relayed(const Relayed& relayed) {
  const auto from = static_cast<Rank>(relayed.frame.message.count);
  if (from < 0 || from >= size_ || from == rank_ || peer(from).dead || peer(from).left) return;
  switch_to_relay(from);  // the peer has abandoned the connection
  peer(from).relayed_bytes += relayed.payload.bytes;
  peer(from).relayed_link->arrived(relayed.frame, relayed.payload,
                                   [&](const Frame& inner, Slice payload, bool unordered) {
                                     if (inner.kind != FrameKind::heartbeat)
                                       arrived(from, inner, std::move(payload));
                                     else if (unordered)
                                       receive_heartbeat(from, payload, false);
                                   });
}

void MonitoredTransport::switch_to_relay(Rank which) {
  if (peer(which).relayed) return;
  log(LogLevel::normal,
      fmt::format("rank {} has lost its connection to rank {}, which other ranks still reach: their "
                  "messages now go through another rank",
                  rank_, which));
  {
    const std::lock_guard lock(mutex_);
    detector_.connection_abandoned(which);
    heartbeat_due_ = true;
  }
  peer(which).relayed_link->start(transport_->stop_sending(which));
  peer(which).relayed = true;
  peer(which).relayed_link->received_before(transport_->stop_receiving(which));
}

void MonitoredTransport::lose(Rank which) {
  if (peer(which).dead.exchange(true)) return;
  peer(which).relayed_link->drop();
  transport_->abandon_peer(which);
  receiver_->gone(which);
}

void MonitoredTransport::choose_relays() {
  for (Rank r = 0; r < size_; ++r) {
    if (r == rank_ || !peer(r).relayed || peer(r).dead || peer(r).left) continue;
    const Rank current = peer(r).relayed_link->relay();
    Rank next = -1;
    {
      const std::lock_guard lock(mutex_);
      next = detector_.next_hop(r);
    }
    if (next != current) peer(r).relayed_link->use(next);
  }
}

void MonitoredTransport::send_heartbeats() {
  const std::lock_guard leave_lock(heartbeat_mutex_);
  if (leaving_) return;
  Heartbeat heartbeat;
  heartbeat.status = hooks_.own_status();
  std::vector<StateRow> rows;
  {
    const std::lock_guard lock(mutex_);
    rows = detector_.rows_to_send();
  }
  heartbeat.rows = static_cast<std::uint32_t>(rows.size());
  for (Rank r = 0; r < size_; ++r) {
    if (r == rank_ || peer(r).left) continue;
    const bool dead = peer(r).dead;
    if (dead && (!transport_->tolerates_peer_failure() || transport_->bytes_in_flight(r) > kMostToDeadPeer))
      continue;
    const bool first = !peer(r).knows_connections.exchange(true);
    heartbeat.connection_ids = first ? static_cast<std::uint32_t>(connection_ids_.size()) : 0;
    const std::size_t bytes =
        sizeof(heartbeat) + rows.size() * row_bytes(size_) + heartbeat.connection_ids * sizeof(std::uint64_t);
    const Slice payload{pool_->take(bytes), 0, bytes};
    if (!payload.memory) return;  // messages use all memory: skip this heartbeat
    std::memset(payload.data(), 0, bytes);
    std::memcpy(payload.data(), &heartbeat, sizeof(heartbeat));
    std::byte* at = payload.data() + sizeof(heartbeat);
    for (const StateRow& row : rows) {
      const RowHead head{row.of, row.version};
      std::memcpy(at, &head, sizeof(head));
      std::memcpy(at + sizeof(head), row.states.data(), row.states.size());
      at += row_bytes(size_);
    }
    if (heartbeat.connection_ids > 0)
      std::memcpy(at, connection_ids_.data(), connection_ids_.size() * sizeof(std::uint64_t));
    Frame frame;
    frame.kind = FrameKind::heartbeat;
    frame.message.bytes = bytes;
    if (peer(r).relayed && !dead)
      peer(r).relayed_link->send_unordered(frame, payload);
    else
      transport_->send(r, frame, payload);
  }
}

void MonitoredTransport::run() {
  const auto interval = detector_.heartbeat_interval();
  const bool detects = transport_->tolerates_peer_failure();
  auto next = FailureDetector::Clock::now();
  for (;;) {
    std::deque<Relayed> relayed;
    FailureDetector::Decision decision;
    bool send_now = false;
    {
      std::unique_lock lock(mutex_);
      woken_.wait_until(lock, next,
                        [&] { return stopping_ || evaluation_due_ || heartbeat_due_ || !relayed_.empty(); });
      if (stopping_) return;
      relayed.swap(relayed_);
      evaluation_due_ = false;
      const auto now = FailureDetector::Clock::now();
      send_now = heartbeat_due_ || now >= next;
      heartbeat_due_ = false;
      if (detects) {
        decision = detector_.evaluate(now, [&](Rank r) { return sockets_.contact(r, interval * 10); });
        excluded_ = !detector_.exclusion_reason().empty();
      }
      if (send_now || decision.news) next = now + interval;
    }
    try {
      for (const Relayed& one : relayed) receive_relayed(one);
      for (const Rank r : decision.broken) switch_to_relay(r);
      for (const Rank r : decision.dead) lose(r);
      if (detects) choose_relays();
      if (send_now || decision.news) send_heartbeats();
    } catch (const std::exception& error) {
      log(LogLevel::normal, fmt::format("rank {}: {}", rank_, error.what()));
    }
  }
}

}  // namespace starling::fabric::network
