#include "starling/fabric/mpi/wire.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <sys/prctl.h>
#include <thread>

#include "starling/fabric/hybrid/hybrid.h"
#include "starling/fabric/message.h"
#include "starling/fabric/mpi/collectives.h"
#include "starling/fabric/mpi/engine.h"
#include "starling/fabric/mpi/link.h"
#include "starling/fabric/mpi/watch.h"
#include "starling/fabric/network/register.h"

namespace starling::mpi_engine {
namespace {

using network::Frame;
using network::FrameKind;
using network::Slice;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds kSpin = 50us;  // after traffic
// While something is half done: MPI moves it only when it is called.
constexpr std::chrono::nanoseconds kBusySpin = 5ms;
constexpr std::size_t kLong = std::size_t{64} << 10;  // bytes that MPI does not just hand over
constexpr auto kHelpedLately = 200us;
constexpr auto kShortestPause = 10us;
constexpr std::chrono::nanoseconds kLongestPause = 500us;
constexpr auto kDepartTimeout = 5s;

// All of the communicator call it.
std::vector<bool> ranks_of_this_host(MPI_Comm comm, Rank size) {
  const std::uint64_t mine = hash_name(host_identity());
  std::vector<std::uint64_t> hosts(static_cast<std::size_t>(size));
  check(MPI_Allgather(&mine, 1, MPI_UINT64_T, hosts.data(), 1, MPI_UINT64_T, comm),
        "ranks do not find out who shares a host");
  std::vector<bool> found;
  for (const std::uint64_t host : hosts) found.push_back(host == mine);
  return found;
}

/// One thread makes progress; where MPI allows it, who sends tells MPI at once.
class MpiWire final : public network::Wire, private User {
 public:
  explicit MpiWire(MPI_Comm comm)
      : engine_(Engine::get()),
        rank_(rank_in(comm)),
        size_(size_of(comm)),
        register_(rank_, size_, [this](Rank to, const Frame& frame) { send(to, frame, {}); }),
        watch_(comm),
        collectives_(comm),
        traffic_{network::Turns(size_), network::Turns(size_),
                 [this](const network::Turns::Releases& all) {
                   for (const auto& [peer, payloads] : all)
                     link(peer).send_held(payloads, engine_.concurrent());
                 },
                 [this](const network::Turns::Releases& all) {
                   for (const auto& [peer, payloads] : all) link(peer).receive_held(payloads);
                 }} {
    const auto deliver = [this](Rank from, const Frame& frame, Slice payload) {
      this->deliver(from, frame, std::move(payload));
    };
    const std::vector<bool> shares_host = ranks_of_this_host(comm, size_);
    for (Rank r = 0; r < size_; ++r) {
      const bool near = shares_host[static_cast<std::size_t>(r)];
      links_.push_back(r == rank_ ? nullptr
                                  : std::make_unique<Link>(comm, rank_, r, !near, traffic_, deliver));
    }
  }
  ~MpiWire() override {
    stop();
    engine_.remove(*this);
  }

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }
  network::Register& own_register() { return register_; }

  void start(Receiver& receiver, network::Pool& pool) override {
    receiver_ = &receiver;
    engine_.add(*this);
    requests_.assign(links_.size() * Link::kHeads, MPI_REQUEST_NULL);
    ended_.resize(requests_.size());
    statuses_.resize(requests_.size());
    {
      const auto turn = engine_.turn();
      for (const auto& link : links_)
        if (link) link->start(pool);
    }
    if (size_ == 1) return;
    thread_ = std::thread([this] { run(); });
    watch_.start([this](Rank peer) {
      if (!link(peer).left()) end_job(rank_, peer, "its process has ended");
    });
  }

  bool send(Rank to, const Frame& frame, const Slice& payload) override {
    if (stopping_ || (departing_ && frame.kind == FrameKind::heartbeat)) return true;
    if (frame.kind == FrameKind::leave) {
      send_leave(to, frame);
    } else {
      link(to).send(frame, payload, engine_.concurrent());
      if (!engine_.concurrent() || payload.bytes > kLong) wake();
    }
    return true;
  }

  void help(const std::function<bool()>& there, Deadline until) override {
    if (size_ == 1) return;
    ++helpers_;
    auto last = Clock::now();
    auto now = last;
    bool found = there();
    while (!found && !stopping_ && now < until && now - last < patience()) {
      const bool moved = advance();
      if (!moved) std::this_thread::yield();
      found = there();
      now = Clock::now();
      if (moved) last = now;
    }
    helped_ = found ? Clock::now() : Clock::time_point();
    --helpers_;
    if (!found) wake();
  }

  bool acknowledged(Rank peer) const override { return stopping_ || link(peer).acknowledged(); }
  std::size_t bytes_on_the_way(Rank peer) const override { return link(peer).bytes_on_the_way(); }

  // A thread that waits inside MPI for others would keep this rank's from taking their turns.
  Collectives* collectives() override { return engine_.concurrent() ? &collectives_ : nullptr; }

  void stop() override {
    if (stopping_.exchange(true)) return;
    collectives_.stop();
    register_.close();
    watch_.stop();
    wake();
    if (!thread_.joinable()) return;
    thread_.join();
    const std::lock_guard lock(advance_mutex_);
    const auto turn = engine_.turn();
    for (const auto& link : links_)
      if (link) link->stop();
  }

 private:
  static Rank rank_in(MPI_Comm comm) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    return rank;
  }
  static Rank size_of(MPI_Comm comm) {
    int size = 0;
    MPI_Comm_size(comm, &size);
    return size;
  }
  Link& link(Rank r) const { return *links_[static_cast<std::size_t>(r)]; }

  // What this rank knows of agreements goes with it: the next one keeps them.
  void send_leave(Rank to, Frame frame) {
    const auto entries = register_.close();
    const std::size_t bytes = entries.size() * sizeof(entries[0]);
    Slice payload{bytes == 0 ? nullptr : own_.take(bytes), 0, bytes};
    if (bytes > 0) std::memcpy(payload.data(), entries.data(), bytes);
    frame.message.bytes = bytes;
    link(to).send(frame, payload, engine_.concurrent());
    wake();
  }

  // The process ends and nobody has dropped the fabric.
  void depart() noexcept override {
    Frame frame;
    frame.kind = FrameKind::leave;
    departing_ = true;
    const auto until = Clock::now() + kDepartTimeout;
    for (Rank r = 0; r < size_; ++r)
      if (r != rank_) send(r, frame, {});
    for (Rank r = 0; r < size_; ++r)
      while (r != rank_ && !acknowledged(r) && Clock::now() < until) std::this_thread::sleep_for(1ms);
    stop();
  }

  void deliver(Rank from, const Frame& frame, Slice payload) {
    switch (frame.kind) {
      case FrameKind::propose:
        register_.proposed(from, frame);
        break;
      case FrameKind::decided:
        register_.decided(frame);
        break;
      case FrameKind::leave:
        link(from).leave();
        register_.left(from, payload);
        [[fallthrough]];
      default:
        receiver_->arrived(from, frame, std::move(payload));
    }
  }

  void run() {
    prctl(PR_SET_TIMERSLACK, 1000);  // ns: pauses are short
    auto last = Clock::now();
    auto pause = std::chrono::nanoseconds(kShortestPause);
    while (!stopping_) {
      if (advance() || told_.exchange(false)) {
        last = Clock::now();
        pause = kShortestPause;
      }
      const auto now = Clock::now();
      const bool helped = helpers_ > 0 || now - helped_.load() < kHelpedLately;
      if (!helped && now - last < patience()) {
        std::this_thread::yield();
        continue;
      }
      look_at_turns();
      std::unique_lock lock(rest_mutex_);
      resting_ = true;
      rested_.wait_for(lock, helped ? kLongestPause : pause, [&] { return told_ || stopping_; });
      resting_ = false;
      pause = std::min<std::chrono::nanoseconds>(2 * pause, kLongestPause);
    }
  }

  // Somebody may wait for its turn behind one that does not move.
  void look_at_turns() {
    const std::lock_guard lock(advance_mutex_);
    traffic_.send(traffic_.out.look());
    traffic_.receive(traffic_.in.look());
  }

  // How long after the last event it is worth while to look again at once.
  std::chrono::nanoseconds patience() const { return busy_ ? kBusySpin : kSpin; }

  void wake() {
    told_ = true;
    if (!resting_) return;
    const std::lock_guard lock(rest_mutex_);
    rested_.notify_one();
  }

  // Whether anything has ended. By the thread of this wire, or by who waits.
  bool advance() {
    const std::lock_guard lock(advance_mutex_);
    if (stopping_) return false;
    const auto turn = engine_.turn();
    bool busy = false;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (!links_[i]) continue;
      links_[i]->collect(&requests_[i * Link::kHeads]);
      busy = busy || links_[i]->busy();
    }
    busy_ = busy;
    int count = 0;
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, ended_.data(),
                                  statuses_.data());
    for (int k = 0; count != MPI_UNDEFINED && k < count; ++k) {
      const auto at = static_cast<std::size_t>(ended_[static_cast<std::size_t>(k)]);
      const std::size_t peer = at / Link::kHeads;
      const int error = statuses_[static_cast<std::size_t>(k)].MPI_ERROR;
      if (code == MPI_ERR_IN_STATUS && error != MPI_SUCCESS && !links_[peer]->left())
        end_job(rank_, static_cast<Rank>(peer), error_text(error));
      links_[peer]->ended(static_cast<Link::Head>(at % Link::kHeads));
    }
    return count != MPI_UNDEFINED && count > 0;
  }

  Engine& engine_;
  Rank rank_;
  Rank size_;
  network::Register register_;
  Watch watch_;
  MpiCollectives collectives_;
  network::Pool own_{SIZE_MAX};
  Receiver* receiver_ = nullptr;
  network::Traffic traffic_;
  std::vector<std::unique_ptr<Link>> links_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> departing_{false};
  std::thread thread_;

  std::mutex advance_mutex_;
  std::atomic<int> helpers_{0};  // threads that wait: then the wire's own stays out of their way
  std::atomic<Clock::time_point> helped_{Clock::time_point()};
  std::atomic<bool> busy_{false};
  std::vector<MPI_Request> requests_;  // kHeads of every link
  std::vector<int> ended_;
  std::vector<MPI_Status> statuses_;

  std::mutex rest_mutex_;
  std::condition_variable rested_;
  std::atomic<bool> told_{false};  // something was sent
  std::atomic<bool> resting_{false};
};

class RegisterLedger final : public network::Ledger {
 public:
  explicit RegisterLedger(network::Register& all) : register_(all) {}
  std::int64_t agree(std::uint64_t key, std::int64_t proposal) override {
    return register_.agree(key, proposal);
  }

 private:
  network::Register& register_;
};

}  // namespace

Parts make_parts(MPI_Comm own) {
  auto wire = std::make_unique<MpiWire>(own);
  auto ledger = std::make_unique<RegisterLedger>(wire->own_register());
  return {std::move(wire), std::move(ledger)};
}

}  // namespace starling::mpi_engine
