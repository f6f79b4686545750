#include "starling/fabric/network/network.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <functional>
#include <thread>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/forks.h"
#include "starling/fabric/network/board.h"
#include "starling/fabric/network/monitored_transport.h"
#include "starling/fabric/network/remote_calls.h"
#include "starling/record/log.h"

namespace starling::fabric {
namespace network {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestSleep{50};
constexpr std::chrono::milliseconds kLeaveCheckInterval{1};

/// The fabric of one rank over a transport: queues of received messages, and memory of outgoing ones.
/// Thread-safe.
class TransportFabric final : public NetworkFabric,
                              private Transport::Receiver,
                              private Outgoing::Owner,
                              private Arrival::Owner {
 public:
  TransportFabric(std::unique_ptr<Transport> transport, std::unique_ptr<Consensus> consensus,
                  const NetworkOptions& options)
      : transport_(std::make_unique<MonitoredTransport>(
            std::move(transport),
            options.peer_timeout.count() > 0 ? options.peer_timeout : read_peer_timeout(),
            MonitoredTransport::StatusHooks{
                [this] { return board_.own_status(); },
                [this](Rank from, const RankStatus& status) { board_.set_status(from, status); }})),
        rank_(transport_->rank()),
        size_(transport_->size()),
        options_(options),
        pool_(options.memory_limit),
        requests_([this](Rank peer) { return alive(peer); }),
        remote_calls_(*transport_, requests_, [this](Rank peer) { return alive(peer); }),
        board_(
            rank_, size_, std::move(consensus), requests_,
            [this](Rank to, const Frame& frame, const void* payload, std::size_t bytes) {
              send_copy(to, frame, payload, bytes);
            },
            [this](Rank peer) { return alive(peer); }),
        peers_(std::make_unique<Peer[]>(static_cast<std::size_t>(size_))) {
    board_.on_status_change([this] { transport_->send_heartbeats_now(); });
    transport_->start(*this, pool_);
  }

  ~TransportFabric() override {
    if (forks_so_far() != forks_) {
      static_cast<void>(transport_.release());  // its threads run in the parent only
      return;
    }
    try {
      leave();
    } catch (const std::exception& error) {
      log(LogLevel::normal, fmt::format("rank {} left without notifying its peers: {}", rank_, error.what()));
    }
    transport_->stop();
  }

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }
  Board& board() override { return board_; }
  RemoteCalls* remote_calls() override { return &remote_calls_; }
  Collectives* collectives() override { return transport_->collectives(); }
  Admission* admission() override { return admission_.get(); }
  void set_admission(std::unique_ptr<Admission> admission) override { admission_ = std::move(admission); }

  Outgoing reserve(std::size_t bytes) override {
    check_process();
    Memory memory = pool_.take(bytes);
    if (!memory) throw Error(memory_full_message(bytes));
    auto* held = new Slice{std::move(memory), 0, bytes};
    return {this, held, {held->data(), bytes}};
  }

  void post(const OutgoingRange& range, const MessageHeader& header, Rank to) override {
    post_memory({static_cast<Slice*>(range.handle())->memory, range.offset(), range.bytes().size()}, header,
                to);
  }

  void post_memory(const Slice& part, const MessageHeader& header, Rank to) override {
    check_process();
    board_.set_last_post(header);
    if (!alive(to)) return;
    Frame frame;
    frame.message = header;
    frame.message.bytes = part.bytes;
    peer(to).posted += part.bytes;
    if (to == rank_)
      arrived(rank_, frame, part);
    else
      transport_->send(to, frame, part);
  }

  // A peer reports how many bytes it has read only on request, so that the reports cost nothing without
  // callers.
  bool backlogged(Rank to, std::uint64_t bytes) override {
    Peer& reader = peer(to);
    if (reader.posted - reader.read_by_peer <= bytes) return false;
    Frame query;
    query.kind = FrameKind::query_bytes_read;
    if (to == rank_)
      reader.read_by_peer = reader.read_from_peer.load();
    else if (!reader.query_sent.exchange(true))
      transport_->send(to, query, {});
    return reader.posted - reader.read_by_peer > bytes;
  }

  void set_listener(std::function<void()> listener) override {
    const std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
  }

  // Lets the transport's threads run.
  void yield_cpu() override { std::this_thread::yield(); }

  void nudge() override {
    {
      const std::lock_guard lock(mutex_);
      ++polled_;
    }
    changed_.notify_all();
  }

  std::optional<Arrival> poll(Rank source) override {
    Peer& from = peer(source);
    if (from.waiting.load(std::memory_order_acquire) == 0) return std::nullopt;
    Message message;
    {
      const std::lock_guard lock(mutex_);
      if (from.queue.empty()) return std::nullopt;
      message = std::move(from.queue.front());
      from.queue.pop_front();
      --from.waiting;
      ++polled_;
    }
    changed_.notify_all();  // another thread may be sleeping until this message arrives
    auto* held = new Read{std::move(message.payload), source};
    return Arrival(this, source, held, message.header, {held->payload.data(), held->payload.bytes});
  }

  std::uint32_t wake_count() const override { return polled_.load(std::memory_order_seq_cst); }

  void sleep(std::uint32_t wake_count, std::span<const Rank> sources, Deadline deadline) override {
    check_process();
    const auto until = std::min(deadline, Clock::now() + kLongestSleep);
    const std::uint64_t lost_before = lost_peers_;
    const auto done = [&] {
      return polled_ != wake_count || lost_peers_ != lost_before ||
             std::any_of(sources.begin(), sources.end(), [&](Rank r) { return peer(r).waiting != 0; });
    };
    transport_->make_progress(std::ref(done), until);
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, done);
  }

  std::uint64_t expose(std::size_t bytes) override { return exposed_.take(bytes); }
  void withdraw(std::uint64_t memory, std::size_t) override { exposed_.give_back(memory); }
  std::byte* exposed(Rank rank, std::uint64_t memory) override {
    if (rank != rank_)
      throw Error(fmt::format("rank {} cannot access the memory of rank {} over a network", rank_, rank));
    return reinterpret_cast<std::byte*>(memory);
  }

  bool alive(Rank which) const override {
    return which == rank_ || !peer(which).gone.load(std::memory_order_acquire);
  }
  std::string exclusion_reason() const override { return transport_->exclusion_reason(); }
  void exclude(Rank which) override { transport_->exclude(which); }
  std::uint64_t bytes_from(Rank source) const override {
    return source == rank_ ? 0 : transport_->bytes_from(source);
  }

 private:
  struct Message {
    MessageHeader header;
    Slice payload;
  };
  struct Read {
    Slice payload;
    Rank from;
  };
  struct Peer {
    std::deque<Message> queue;
    std::atomic<std::size_t> waiting{0};
    std::atomic<bool> gone{false};
    // Bytes of messages: posted to the peer, read by it as far as it has reported, and read from it.
    std::atomic<std::uint64_t> posted{0}, read_by_peer{0}, read_from_peer{0};
    std::atomic<bool> query_sent{false};  // a query_bytes_read is unanswered
  };

  Peer& peer(Rank r) const { return peers_[static_cast<std::size_t>(r)]; }

  void check_process() const {
    if (forks_so_far() != forks_)
      throw Error(fmt::format(
          "rank {} belongs to the parent of this process; a forked child cannot use its fabric", rank_));
  }

  void give_back(void* handle) noexcept override { delete static_cast<Slice*>(handle); }
  void done_with(void* handle) noexcept override {
    const std::unique_ptr<Read> held(static_cast<Read*>(handle));
    peer(held->from).read_from_peer += held->payload.bytes;
  }

  void send_copy(Rank to, Frame frame, const void* payload, std::size_t bytes) {
    Slice part{bytes == 0 ? nullptr : pool_.take(bytes), 0, bytes};
    if (bytes > 0 && !part.memory) throw Error(memory_full_message(bytes));
    if (bytes > 0) std::memcpy(part.data(), payload, bytes);
    frame.message.bytes = bytes;
    transport_->send(to, frame, part);
  }

  void arrived(Rank from, const Frame& frame, Slice payload) override {
    switch (frame.kind) {
      case FrameKind::message: {
        {
          const std::lock_guard lock(mutex_);
          peer(from).queue.push_back({frame.message, std::move(payload)});
          ++peer(from).waiting;
          if (listener_) listener_();
        }
        changed_.notify_all();
        break;
      }
      case FrameKind::board_query:
        board_.queried(from, frame, payload);
        break;
      case FrameKind::answer:
        requests_.answered(frame.number, std::move(payload));
        break;
      case FrameKind::refusal:
        requests_.answered(frame.number, std::nullopt);
        break;
      case FrameKind::call:
      case FrameKind::notify:
        remote_calls_.called(from, frame, payload);
        break;
      case FrameKind::leave:
        gone(from);
        break;
      case FrameKind::query_bytes_read: {
        Frame answer;
        answer.kind = FrameKind::bytes_read;
        answer.number = peer(from).read_from_peer;
        transport_->send(from, answer, {});
        break;
      }
      case FrameKind::bytes_read:
        peer(from).read_by_peer = frame.number;
        peer(from).query_sent = false;
        break;
      case FrameKind::received:
      case FrameKind::propose:
      case FrameKind::decided:
      case FrameKind::heartbeat:
      case FrameKind::relay:
        break;  // handled by the transport itself
    }
  }

  void gone(Rank which) override {
    {
      const std::lock_guard lock(mutex_);
      if (peer(which).gone.exchange(true)) return;
      ++lost_peers_;
      if (listener_) listener_();
    }
    changed_.notify_all();
    requests_.recheck_peers();
  }

  // Waits until the peers have received everything, within the time limit.
  void leave() {
    Frame frame;
    frame.kind = FrameKind::leave;
    const auto until = Clock::now() + options_.leave_timeout;
    transport_->linger(until);
    for (Rank r = 0; r < size_; ++r)
      if (r != rank_ && alive(r)) transport_->send(r, frame, {});
    for (Rank r = 0; r < size_; ++r)
      while (r != rank_ && !transport_->acknowledged(r) && Clock::now() < until)
        std::this_thread::sleep_for(kLeaveCheckInterval);
  }

  std::string memory_full_message(std::size_t bytes) const {
    std::string holders;
    for (Rank r = 0; r < size_; ++r) {
      const std::size_t held = r == rank_ ? 0 : transport_->bytes_in_flight(r);
      if (held > 0)
        holders += fmt::format("{}{} are in flight to rank {}", holders.empty() ? "" : ", ", held, r);
    }
    return fmt::format("no room for a message of {} bytes: {} of {} bytes are in use ({})", bytes,
                       pool_.used(), pool_.limit(),
                       holders.empty() ? "all of them by this rank's own messages" : holders);
  }

  std::unique_ptr<MonitoredTransport> transport_;
  Rank rank_;
  Rank size_;
  NetworkOptions options_;
  Pool pool_;
  PendingRequests requests_;
  NetworkRemoteCalls remote_calls_;
  NetworkBoard board_;
  std::unique_ptr<Peer[]> peers_;
  mutable std::mutex mutex_;  // guards the queues
  std::condition_variable changed_;
  std::atomic<std::uint32_t> polled_{0};
  std::atomic<std::uint64_t> lost_peers_{0};
  std::function<void()> listener_;  // called under the mutex, so that it can be removed safely
  ExposedMemory exposed_;
  std::unique_ptr<Admission> admission_;
  const int forks_ = forks_so_far();
};

}  // namespace
}  // namespace network

std::chrono::nanoseconds read_peer_timeout() {
  return environment::kPeerTimeout.seconds(0.5).value_or(std::chrono::seconds(10));
}

std::shared_ptr<NetworkFabric> make_network_fabric(std::unique_ptr<network::Transport> transport,
                                                   std::unique_ptr<network::Consensus> consensus,
                                                   const NetworkOptions& options) {
  return std::make_shared<network::TransportFabric>(std::move(transport), std::move(consensus), options);
}

}  // namespace starling::fabric
