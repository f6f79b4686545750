#include "starling/fabric/network/watched_wire.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "starling/record/log.h"

namespace starling::network {
namespace {

constexpr std::size_t kMostToTheDead = std::size_t{64} << 10;  // bytes of heartbeats
constexpr std::size_t kMostWords = 1000;
constexpr std::chrono::milliseconds kLingerLook{2};

struct Heartbeat {
  Notes notes;
  std::uint32_t rows = 0;   // so many follow,
  std::uint32_t words = 0;  // then so many words
};

struct RowHead {
  std::int32_t of = 0;
  std::uint32_t version = 0;
};

// With one Hearing of each rank; words stay aligned.
std::size_t row_bytes(Rank ranks) {
  return sizeof(RowHead) + (static_cast<std::size_t>(ranks) + 7) / 8 * 8;
}

}  // namespace

WatchedWire::WatchedWire(std::unique_ptr<Wire> wire, std::chrono::nanoseconds bound, Hooks hooks)
    : wire_(std::move(wire)),
      rank_(wire_->rank()),
      size_(wire_->size()),
      bound_(bound),
      hooks_(std::move(hooks)),
      peers_(std::make_unique<Peer[]>(static_cast<std::size_t>(size_))),
      detector_(rank_, size_, std::chrono::duration_cast<Detector::Clock::duration>(bound),
                Detector::Clock::now()),
      sockets_(size_) {}

void WatchedWire::start(Wire::Receiver& receiver, Pool& pool) {
  receiver_ = &receiver;
  pool_ = &pool;
  for (Rank r = 0; r < size_; ++r)
    peer(r).detour = std::make_unique<Detour>(
        rank_, r, pool,
        [this](Rank relay, const Frame& frame, const Slice& payload) { wire_->send(relay, frame, payload); });
  if (wire_->survives_losses()) words_ = sockets_.find();
  if (words_.size() > kMostWords) words_.clear();
  wire_->start(*this, pool);
  if (size_ > 1) thread_ = std::thread([this] { run(); });
}

bool WatchedWire::send(Rank to, const Frame& frame, const Slice& payload) {
  if (frame.kind == FrameKind::leave) {
    const std::lock_guard lock(beat_mutex_);
    leaving_ = true;
  }
  if (peer(to).dead) return false;
  return wire_->send(to, frame, payload) ||
         (wire_->survives_losses() && peer(to).detour->send(frame, payload));
}

bool WatchedWire::acknowledged(Rank which) const {
  if (peer(which).dead || excluded_) return true;
  return peer(which).cut ? peer(which).detour->acknowledged() : wire_->acknowledged(which);
}

std::size_t WatchedWire::bytes_on_the_way(Rank which) const {
  if (peer(which).dead) return 0;
  return peer(which).cut ? peer(which).detour->bytes() : wire_->bytes_on_the_way(which);
}

std::uint64_t WatchedWire::bytes_from(Rank which) const {
  return wire_->bytes_from(which) + peer(which).relayed_bytes;
}

void WatchedWire::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  if (thread_.joinable()) thread_.join();
  wire_->stop();
}

void WatchedWire::beat_now() {
  {
    const std::lock_guard lock(mutex_);
    beat_ = true;
  }
  woken_.notify_all();
}

void WatchedWire::exclude(Rank which) {
  if (which == rank_ || peer(which).dead || peer(which).left) return;
  {
    const std::lock_guard lock(mutex_);
    detector_.exclude(which);
    beat_ = true;
  }
  lose(which);
  woken_.notify_all();
}

std::string WatchedWire::exclusion() const {
  if (!excluded_) return {};
  const std::lock_guard lock(mutex_);
  return detector_.exclusion();
}

void WatchedWire::linger(Deadline until) const {
  for (;;) {
    {
      const std::lock_guard lock(passing_mutex_);
      const bool needed = passed_from_ >= 0 && Detector::Clock::now() - passed_ < bound_ / 5 &&
                          !peer(passed_from_).left && !peer(passed_from_).dead && !peer(passed_to_).left &&
                          !peer(passed_to_).dead;
      if (!needed) return;
    }
    if (Detector::Clock::now() > until) return;
    std::this_thread::sleep_for(kLingerLook);
  }
}

void WatchedWire::arrived(Rank from, const Frame& frame, Slice payload) {
  switch (frame.kind) {
    case FrameKind::heartbeat:
      take_heartbeat(from, payload, true);
      return;
    case FrameKind::relay:
      if (static_cast<Rank>(frame.message.detail) != rank_) {
        pass_on(frame, payload);
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
      peer(from).detour->drop();
      const std::lock_guard lock(mutex_);
      detector_.left(from);
      break;
    }
    default:
      break;
  }
  if (!peer(from).dead) receiver_->arrived(from, frame, std::move(payload));
}

void WatchedWire::pass_on(Frame frame, const Slice& payload) {
  const auto from = static_cast<Rank>(frame.message.count);
  const auto to = static_cast<Rank>(frame.message.detail);
  if (from < 0 || from >= size_ || to < 0 || to >= size_) return;
  if (++frame.topic > static_cast<std::uint32_t>(size_)) return;  // in a circle
  {
    const std::lock_guard lock(passing_mutex_);
    passed_ = Detector::Clock::now();
    passed_from_ = from;
    passed_to_ = to;
  }
  Rank next = to;
  {
    const std::lock_guard lock(mutex_);
    if (!detector_.hears(to)) next = detector_.next_to(to);
  }
  if (next >= 0) wire_->send(next, frame, payload);
}

void WatchedWire::gone(Rank which) {
  bool decided = peer(which).left || peer(which).dead || !wire_->survives_losses();
  if (!decided) {
    const std::lock_guard lock(mutex_);
    decided = stopping_;
    if (!decided) {
      detector_.closed(which, Detector::Clock::now());
      look_ = true;
    }
  }
  if (decided)
    receiver_->gone(which);
  else
    woken_.notify_all();
}

void WatchedWire::take_heartbeat(Rank from, const Slice& payload, bool direct) {
  Heartbeat heartbeat;
  if (payload.bytes < sizeof(heartbeat)) return;
  std::memcpy(&heartbeat, payload.data(), sizeof(heartbeat));
  if (heartbeat.rows > static_cast<std::uint32_t>(size_) || heartbeat.words > kMostWords ||
      payload.bytes !=
          sizeof(heartbeat) + heartbeat.rows * row_bytes(size_) + heartbeat.words * sizeof(std::uint64_t))
    return;
  const std::byte* at = payload.data() + sizeof(heartbeat);
  std::vector<Row> rows;
  for (std::uint32_t k = 0; k < heartbeat.rows; ++k, at += row_bytes(size_)) {
    RowHead head;
    std::memcpy(&head, at, sizeof(head));
    rows.push_back({head.of, head.version, std::vector<Hearing>(static_cast<std::size_t>(size_))});
    std::memcpy(rows.back().hearing.data(), at + sizeof(head), static_cast<std::size_t>(size_));
  }
  std::vector<std::uint64_t> words(heartbeat.words);
  if (!words.empty()) std::memcpy(words.data(), at, words.size() * sizeof(std::uint64_t));
  bool news = false;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Detector::Clock::now();
    if (direct) detector_.heard(from, now);
    for (const Row& row : rows) news = detector_.told(row, now) || news;
    if (!words.empty()) sockets_.told(from, words);
    look_ = look_ || news;
    beat_ = beat_ || news;  // others hear of it at once
  }
  hooks_.heard(from, heartbeat.notes);
  if (news) woken_.notify_all();
}

void WatchedWire::take_relayed(const Relayed& relayed) {
  const auto from = static_cast<Rank>(relayed.frame.message.count);
  if (from < 0 || from >= size_ || from == rank_ || peer(from).dead || peer(from).left) return;
  detour_around(from);  // the other end has given the connection up
  peer(from).relayed_bytes += relayed.payload.bytes;
  peer(from).detour->arrived(relayed.frame, relayed.payload,
                             [&](const Frame& inner, Slice payload, bool aside) {
                               if (inner.kind != FrameKind::heartbeat)
                                 arrived(from, inner, std::move(payload));
                               else if (aside)
                                 take_heartbeat(from, payload, false);
                             });
}

void WatchedWire::detour_around(Rank which) {
  if (peer(which).cut) return;
  log(LogLevel::normal,
      fmt::format("rank {} has lost its connection to rank {}, which others still hear: their "
                  "messages go through another rank",
                  rank_, which));
  {
    const std::lock_guard lock(mutex_);
    detector_.cut(which);
    beat_ = true;
  }
  peer(which).detour->start(wire_->cut(which));
  peer(which).cut = true;
  peer(which).detour->received_before(wire_->end_receiving(which));
}

void WatchedWire::lose(Rank which) {
  if (peer(which).dead.exchange(true)) return;
  peer(which).detour->drop();
  wire_->give_up(which);
  receiver_->gone(which);
}

void WatchedWire::choose_relays() {
  for (Rank r = 0; r < size_; ++r) {
    if (r == rank_ || !peer(r).cut || peer(r).dead || peer(r).left) continue;
    const Rank now_used = peer(r).detour->relay();
    Rank next = -1;
    {
      const std::lock_guard lock(mutex_);
      next = detector_.next_to(r);
    }
    if (next != now_used) peer(r).detour->use(next);
  }
}

void WatchedWire::beat() {
  const std::lock_guard leave_lock(beat_mutex_);
  if (leaving_) return;
  Heartbeat heartbeat;
  heartbeat.notes = hooks_.own();
  std::vector<Row> rows;
  {
    const std::lock_guard lock(mutex_);
    rows = detector_.rows();
  }
  heartbeat.rows = static_cast<std::uint32_t>(rows.size());
  for (Rank r = 0; r < size_; ++r) {
    if (r == rank_ || peer(r).left) continue;
    const bool dead = peer(r).dead;
    if (dead && (!wire_->survives_losses() || wire_->bytes_on_the_way(r) > kMostToTheDead)) continue;
    const bool first = !peer(r).hears_words.exchange(true);
    heartbeat.words = first ? static_cast<std::uint32_t>(words_.size()) : 0;
    const std::size_t bytes =
        sizeof(heartbeat) + rows.size() * row_bytes(size_) + heartbeat.words * sizeof(std::uint64_t);
    const Slice payload{pool_->take(bytes), 0, bytes};
    if (!payload.memory) return;  // messages take all there is: the next one will do
    std::memset(payload.data(), 0, bytes);
    std::memcpy(payload.data(), &heartbeat, sizeof(heartbeat));
    std::byte* at = payload.data() + sizeof(heartbeat);
    for (const Row& row : rows) {
      const RowHead head{row.of, row.version};
      std::memcpy(at, &head, sizeof(head));
      std::memcpy(at + sizeof(head), row.hearing.data(), row.hearing.size());
      at += row_bytes(size_);
    }
    if (heartbeat.words > 0) std::memcpy(at, words_.data(), words_.size() * sizeof(std::uint64_t));
    Frame frame;
    frame.kind = FrameKind::heartbeat;
    frame.message.bytes = bytes;
    if (peer(r).cut && !dead)
      peer(r).detour->send_aside(frame, payload);
    else
      wire_->send(r, frame, payload);
  }
}

void WatchedWire::run() {
  const auto pause = detector_.beat();
  const bool decides = wire_->survives_losses();
  auto next = Detector::Clock::now();
  for (;;) {
    std::deque<Relayed> relayed;
    Detector::Verdict verdict;
    bool beats = false;
    {
      std::unique_lock lock(mutex_);
      woken_.wait_until(lock, next, [&] { return stopping_ || look_ || beat_ || !relayed_.empty(); });
      if (stopping_) return;
      relayed.swap(relayed_);
      look_ = false;
      const auto now = Detector::Clock::now();
      beats = beat_ || now >= next;
      beat_ = false;
      if (decides) {
        verdict = detector_.look(now, [&](Rank r) { return sockets_.contact(r, pause * 10); });
        excluded_ = !detector_.exclusion().empty();
      }
      if (beats || verdict.news) next = now + pause;
    }
    try {
      for (const Relayed& one : relayed) take_relayed(one);
      for (const Rank r : verdict.broken) detour_around(r);
      for (const Rank r : verdict.dead) lose(r);
      if (decides) choose_relays();
      if (beats || verdict.news) beat();
    } catch (const std::exception& error) {
      log(LogLevel::normal, fmt::format("rank {}: {}", rank_, error.what()));
    }
  }
}

}  // namespace starling::network
