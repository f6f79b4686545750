#include "starling/fabric/network/network.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <functional>
#include <thread>

#include "starling/base/error.h"
#include "starling/base/forks.h"
#include "starling/fabric/network/board.h"
#include "starling/fabric/network/services.h"
#include "starling/fabric/network/watched_wire.h"

namespace starling {
namespace network {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestSleep{50};
constexpr std::chrono::milliseconds kLeaveLook{1};

class OverWire final : public NetworkFabric,
                       private Wire::Receiver,
                       private Outgoing::Owner,
                       private Arrival::Owner {
 public:
  OverWire(std::unique_ptr<Wire> wire, std::unique_ptr<Ledger> ledger, const NetworkOptions& options)
      : wire_(std::make_unique<WatchedWire>(
            std::move(wire), options.peer_timeout.count() > 0 ? options.peer_timeout : read_peer_timeout(),
            WatchedWire::Hooks{[this] { return board_.own_notes(); },
                               [this](Rank from, const Notes& notes) { board_.heard(from, notes); }})),
        rank_(wire_->rank()),
        size_(wire_->size()),
        options_(options),
        pool_(options.memory_limit),
        questions_([this](Rank peer) { return alive(peer); }),
        services_(*wire_, questions_, [this](Rank peer) { return alive(peer); }),
        board_(
            rank_, size_, std::move(ledger), questions_,
            [this](Rank to, const Frame& frame, const void* payload, std::size_t bytes) {
              send_copy(to, frame, payload, bytes);
            },
            [this](Rank peer) { return alive(peer); }),
        peers_(std::make_unique<Peer[]>(static_cast<std::size_t>(size_))) {
    board_.set_listener([this] { wire_->beat_now(); });
    wire_->start(*this, pool_);
  }

  ~OverWire() override {
    if (forks_so_far() != forks_) {
      static_cast<void>(wire_.release());  // its threads run in the parent only
      return;
    }
    leave();
    wire_->stop();
  }

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }
  Board& board() override { return board_; }
  Services* services() override { return &services_; }
  Collectives* collectives() override { return wire_->collectives(); }
  Door* door() override { return door_.get(); }
  void set_door(std::unique_ptr<Door> door) override { door_ = std::move(door); }

  Outgoing reserve(std::size_t bytes) override {
    check_process();
    Memory memory = pool_.take(bytes);
    if (!memory) throw Error(full_text(bytes));
    auto* held = new Slice{std::move(memory), 0, bytes};
    return {this, held, {held->data(), bytes}};
  }

  void post(const OutgoingRange& range, const MessageHeader& header, Rank to) override {
    post_memory({static_cast<Slice*>(range.handle())->memory, range.offset(), range.bytes().size()}, header,
                to);
  }

  void post_memory(const Slice& part, const MessageHeader& header, Rank to) override {
    check_process();
    board_.note_post(header);
    if (!alive(to)) return;
    Frame frame;
    frame.message = header;
    frame.message.bytes = part.bytes;
    peer(to).posted += part.bytes;
    if (to == rank_)
      arrived(rank_, frame, part);
    else
      wire_->send(to, frame, part);
  }

  // The other side says how much it has read when it is asked, which only who waits for it does.
  bool backlogged(Rank to, std::uint64_t bytes) override {
    Peer& reader = peer(to);
    if (reader.posted - reader.read_there <= bytes) return false;
    Frame question;
    question.kind = FrameKind::ask_read;
    if (to == rank_)
      reader.read_there = reader.read_here.load();
    else if (!reader.asked.exchange(true))
      wire_->send(to, question, {});
    return reader.posted - reader.read_there > bytes;
  }

  void set_listener(std::function<void()> listener) override {
    const std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
  }

  // To the threads that send and receive.
  void give_way() override { std::this_thread::yield(); }

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
    changed_.notify_all();  // another thread may sleep for what this one took
    auto* held = new Read{std::move(message.payload), source};
    return Arrival(this, source, held, message.header, {held->payload.data(), held->payload.bytes});
  }

  std::uint32_t ticket() const override { return polled_.load(std::memory_order_seq_cst); }

  void sleep(std::uint32_t ticket, std::span<const Rank> sources, Deadline deadline) override {
    check_process();
    const auto until = std::min(deadline, Clock::now() + kLongestSleep);
    const std::uint64_t deaths = deaths_;
    const auto there = [&] {
      return polled_ != ticket || deaths_ != deaths ||
             std::any_of(sources.begin(), sources.end(), [&](Rank r) { return peer(r).waiting != 0; });
    };
    wire_->help(std::ref(there), until);
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, there);
  }

  std::uint64_t expose(std::size_t bytes) override { return exposed_.take(bytes); }
  void withdraw(std::uint64_t memory, std::size_t) override { exposed_.give_back(memory); }
  std::byte* exposed(Rank rank, std::uint64_t memory) override {
    if (rank != rank_)
      throw Error(fmt::format("rank {} cannot reach the memory of rank {} over a network", rank_, rank));
    return reinterpret_cast<std::byte*>(memory);
  }

  bool alive(Rank which) const override {
    return which == rank_ || !peer(which).gone.load(std::memory_order_acquire);
  }
  std::string exclusion() const override { return wire_->exclusion(); }
  void exclude(Rank which) override { wire_->exclude(which); }
  std::uint64_t bytes_from(Rank source) const override {
    return source == rank_ ? 0 : wire_->bytes_from(source);
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
    // Bytes of messages: to it, of these what it has read as far as it has said so, and read from it.
    std::atomic<std::uint64_t> posted{0}, read_there{0}, read_here{0};
    std::atomic<bool> asked{false};  // what it has read
  };

  Peer& peer(Rank r) const { return peers_[static_cast<std::size_t>(r)]; }

  void check_process() const {
    if (forks_so_far() != forks_)
      throw Error(fmt::format(
          "rank {} was joined by this process's parent; a forked child cannot speak for it", rank_));
  }

  void give_back(void* handle) noexcept override { delete static_cast<Slice*>(handle); }
  void done_with(void* handle) noexcept override {
    const std::unique_ptr<Read> held(static_cast<Read*>(handle));
    peer(held->from).read_here += held->payload.bytes;
  }

  void send_copy(Rank to, Frame frame, const void* payload, std::size_t bytes) {
    Slice part{bytes == 0 ? nullptr : pool_.take(bytes), 0, bytes};
    if (bytes > 0 && !part.memory) throw Error(full_text(bytes));
    if (bytes > 0) std::memcpy(part.data(), payload, bytes);
    frame.message.bytes = bytes;
    wire_->send(to, frame, part);
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
      case FrameKind::ask:
        board_.asked(from, frame, payload);
        break;
      case FrameKind::answer:
        questions_.answered(frame.number, std::move(payload));
        break;
      case FrameKind::refusal:
        questions_.answered(frame.number, std::nullopt);
        break;
      case FrameKind::call:
      case FrameKind::tell:
        services_.called(from, frame, payload);
        break;
      case FrameKind::leave:
        gone(from);
        break;
      case FrameKind::ask_read: {
        Frame answer;
        answer.kind = FrameKind::read;
        answer.number = peer(from).read_here;
        wire_->send(from, answer, {});
        break;
      }
      case FrameKind::read:
        peer(from).read_there = frame.number;
        peer(from).asked = false;
        break;
      case FrameKind::received:
      case FrameKind::propose:
      case FrameKind::decided:
      case FrameKind::heartbeat:
      case FrameKind::relay:
        break;  // the wire's own
    }
  }

  void gone(Rank which) override {
    {
      const std::lock_guard lock(mutex_);
      if (peer(which).gone.exchange(true)) return;
      ++deaths_;
      if (listener_) listener_();
    }
    changed_.notify_all();
    questions_.look_around();
  }

  // Others get all that was posted, unless they do not listen.
  void leave() {
    Frame frame;
    frame.kind = FrameKind::leave;
    const auto until = Clock::now() + options_.leave_timeout;
    wire_->linger(until);
    for (Rank r = 0; r < size_; ++r)
      if (r != rank_ && alive(r)) wire_->send(r, frame, {});
    for (Rank r = 0; r < size_; ++r)
      while (r != rank_ && !wire_->acknowledged(r) && Clock::now() < until)
        std::this_thread::sleep_for(kLeaveLook);
  }

  std::string full_text(std::size_t bytes) const {
    std::string holders;
    for (Rank r = 0; r < size_; ++r) {
      const std::size_t held = r == rank_ ? 0 : wire_->bytes_on_the_way(r);
      if (held > 0)
        holders += fmt::format("{}{} are on their way to rank {}", holders.empty() ? "" : ", ", held, r);
    }
    return fmt::format("no room for a message of {} bytes: {} of {} bytes are in use ({})", bytes,
                       pool_.used(), pool_.limit(), holders.empty() ? "all by this rank" : holders);
  }

  std::unique_ptr<WatchedWire> wire_;
  Rank rank_;
  Rank size_;
  NetworkOptions options_;
  Pool pool_;
  Questions questions_;
  NetworkServices services_;
  NetworkBoard board_;
  std::unique_ptr<Peer[]> peers_;
  mutable std::mutex mutex_;  // of the queues
  std::condition_variable changed_;
  std::atomic<std::uint32_t> polled_{0};
  std::atomic<std::uint64_t> deaths_{0};
  std::function<void()> listener_;  // with the lock held, so that it can be taken away
  ExposedMemory exposed_;
  std::unique_ptr<Door> door_;
  const int forks_ = forks_so_far();
};

}  // namespace
}  // namespace network

std::chrono::nanoseconds read_peer_timeout() {
  const char* text = std::getenv("STARLING_PEER_TIMEOUT");
  if (text == nullptr || *text == '\0') return std::chrono::seconds(10);
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end != '\0' || !(seconds >= 0.5 && seconds < 1e6))
    throw InvalidArgument(
        fmt::format("STARLING_PEER_TIMEOUT={} is not a number of seconds, 0.5 or more", text));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

std::shared_ptr<NetworkFabric> make_network_fabric(std::unique_ptr<network::Wire> wire,
                                                   std::unique_ptr<network::Ledger> ledger,
                                                   const NetworkOptions& options) {
  return std::make_shared<network::OverWire>(std::move(wire), std::move(ledger), options);
}

}  // namespace starling
