#include "starling/fabric/mpi/mpi_transport.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <sys/prctl.h>
#include <thread>

#include "starling/base/name_hash.h"
#include "starling/base/os/host.h"
#include "starling/fabric/mpi/collectives.h"
#include "starling/fabric/mpi/engine.h"
#include "starling/fabric/mpi/link.h"
#include "starling/fabric/mpi/process_watch.h"
#include "starling/fabric/network/leader_consensus.h"

namespace starling::fabric::mpi_engine {
namespace {

using network::Frame;
using network::FrameKind;
using network::Slice;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds kSpin = 50us;  // after traffic
// While a transfer is unfinished: MPI makes progress only when it is called.
constexpr std::chrono::nanoseconds kBusySpin = 5ms;
constexpr std::size_t kLong = std::size_t{64} << 10;  // bytes that MPI does not send eagerly
constexpr auto kRecentProgressCall = 200us;
constexpr auto kShortestPause = 10us;
constexpr std::chrono::nanoseconds kLongestPause = 500us;
constexpr auto kDepartTimeout = 5s;

// Collective.
std::vector<bool> ranks_of_this_host(MPI_Comm comm, Rank size) {
  const std::uint64_t mine = hash_name(host_identity());
  std::vector<std::uint64_t> hosts(static_cast<std::size_t>(size));
  check(MPI_Allgather(&mine, 1, MPI_UINT64_T, hosts.data(), 1, MPI_UINT64_T, comm),
        "cannot exchange the hosts of the ranks");
  std::vector<bool> found;
  for (const std::uint64_t host : hosts) found.push_back(host == mine);
  return found;
}

/// One thread makes progress; if MPI permits concurrent calls, sending threads call MPI directly.
class MpiTransport final : public network::Transport, private network::TrafficControl, private EngineUser {
 public:
  explicit MpiTransport(MPI_Comm comm)
      : TrafficControl(size_of(comm)),
        engine_(Engine::get()),
        rank_(rank_in(comm)),
        size_(size_of(comm)),
        consensus_(rank_, size_, [this](Rank to, const Frame& frame) { send(to, frame, {}); }),
        watch_(comm),
        collectives_(comm) {
    const auto deliver = [this](Rank from, const Frame& frame, Slice payload) {
      this->deliver(from, frame, std::move(payload));
    };
    network::TrafficControl& traffic = *this;
    const std::vector<bool> shares_host = ranks_of_this_host(comm, size_);
    for (Rank r = 0; r < size_; ++r) {
      const bool same_host = shares_host[static_cast<std::size_t>(r)];
      links_.push_back(r == rank_ ? nullptr
                                  : std::make_unique<Link>(comm, rank_, r, !same_host, traffic, deliver));
    }
  }
  ~MpiTransport() override {
    stop();
    engine_.remove(*this);
  }

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }
  network::LeaderConsensus& leader_consensus() { return consensus_; }

  void start(Receiver& receiver, network::Pool& pool) override {
    receiver_ = &receiver;
    engine_.add(*this);
    requests_.assign(links_.size() * Link::kHeads, MPI_REQUEST_NULL);
    ended_.resize(requests_.size());
    statuses_.resize(requests_.size());
    {
      const auto mpi_lock = engine_.call_lock();
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

  void make_progress(const std::function<bool()>& done, Deadline until) override {
    if (size_ == 1) return;
    ++progress_callers_;
    auto last = Clock::now();
    auto now = last;
    bool found = done();
    while (!found && !stopping_ && now < until && now - last < spin_time()) {
      const bool moved = advance();
      if (!moved) std::this_thread::yield();
      found = done();
      now = Clock::now();
      if (moved) last = now;
    }
    last_progress_call_ = found ? Clock::now() : Clock::time_point();
    --progress_callers_;
    if (!found) wake();
  }

  bool acknowledged(Rank peer) const override { return stopping_ || link(peer).acknowledged(); }
  std::size_t bytes_in_flight(Rank peer) const override { return link(peer).bytes_in_flight(); }

  // A collective that blocks inside MPI would keep the other threads from calling MPI.
  Collectives* collectives() override { return engine_.concurrent() ? &collectives_ : nullptr; }

  void stop() override {
    if (stopping_.exchange(true)) return;
    collectives_.stop();
    consensus_.close();
    watch_.stop();
    wake();
    if (!thread_.joinable()) return;
    thread_.join();
    const std::lock_guard lock(advance_mutex_);
    const auto mpi_lock = engine_.call_lock();
    for (const auto& link : links_)
      if (link) link->stop();
  }

 private:
  void send_payloads(const network::SendScheduler::Releases& released) override {
    for (const auto& [peer, payloads] : released) link(peer).send_held(payloads, engine_.concurrent());
  }
  void receive_payloads(const network::SendScheduler::Releases& released) override {
    for (const auto& [peer, payloads] : released) link(peer).receive_held(payloads);
  }

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

  // Sends all agreements along, for the next leader.
  void send_leave(Rank to, Frame frame) {
    const auto entries = consensus_.close();
    const std::size_t bytes = entries.size() * sizeof(entries[0]);
    Slice payload{bytes == 0 ? nullptr : own_.take(bytes), 0, bytes};
    if (bytes > 0) std::memcpy(payload.data(), entries.data(), bytes);
    frame.message.bytes = bytes;
    link(to).send(frame, payload, engine_.concurrent());
    wake();
  }

  // The process ends although the fabric still exists.
  void depart() noexcept override {
    Frame frame;
    frame.kind = FrameKind::leave;
    departing_ = true;
    const auto until = Clock::now() + kDepartTimeout;
    try {
      for (Rank r = 0; r < size_; ++r)
        if (r != rank_) send(r, frame, {});
      for (Rank r = 0; r < size_; ++r)
        while (r != rank_ && !acknowledged(r) && Clock::now() < until) std::this_thread::sleep_for(1ms);
      stop();
    } catch (const std::exception&) {
      // The peers see the process end.
    }
  }

  void deliver(Rank from, const Frame& frame, Slice payload) {
    switch (frame.kind) {
      case FrameKind::propose:
        consensus_.proposed(from, frame);
        break;
      case FrameKind::decided:
        consensus_.decided(frame);
        break;
      case FrameKind::leave:
        link(from).leave();
        consensus_.left(from, payload);
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
      if (advance() || work_added_.exchange(false)) {
        last = Clock::now();
        pause = kShortestPause;
      }
      const auto now = Clock::now();
      const bool helped = progress_callers_ > 0 || now - last_progress_call_.load() < kRecentProgressCall;
      if (!helped && now - last < spin_time()) {
        std::this_thread::yield();
        continue;
      }
      recheck_schedule();
      std::unique_lock lock(sleep_mutex_);
      sleeping_ = true;
      woken_.wait_for(lock, helped ? kLongestPause : pause, [&] { return work_added_ || stopping_; });
      sleeping_ = false;
      pause = std::min<std::chrono::nanoseconds>(2 * pause, kLongestPause);
    }
  }

  // Releases transfers that wait for a peer without progress.
  void recheck_schedule() {
    const std::lock_guard lock(advance_mutex_);
    recheck();
  }

  // How long to spin after the last event.
  std::chrono::nanoseconds spin_time() const { return busy_ ? kBusySpin : kSpin; }

  void wake() {
    work_added_ = true;
    if (!sleeping_) return;
    const std::lock_guard lock(sleep_mutex_);
    woken_.notify_one();
  }

  // Tests all requests; true if any has completed. Called by the transport's thread and by waiting threads.
  bool advance() {
    const std::lock_guard lock(advance_mutex_);
    if (stopping_) return false;
    const auto mpi_lock = engine_.call_lock();
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
  network::LeaderConsensus consensus_;
  ProcessWatch watch_;
  MpiCollectives collectives_;
  network::Pool own_{SIZE_MAX};
  Receiver* receiver_ = nullptr;
  std::vector<std::unique_ptr<Link>> links_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> departing_{false};
  std::thread thread_;

  std::mutex advance_mutex_;
  std::atomic<int> progress_callers_{0};  // threads in make_progress: the transport's thread then rests
  std::atomic<Clock::time_point> last_progress_call_{Clock::time_point()};
  std::atomic<bool> busy_{false};
  std::vector<MPI_Request> requests_;  // kHeads per link
  std::vector<int> ended_;
  std::vector<MPI_Status> statuses_;

  std::mutex sleep_mutex_;
  std::condition_variable woken_;
  std::atomic<bool> work_added_{false};  // since the thread last looked
  std::atomic<bool> sleeping_{false};
};

/// The transport's consensus for the fabric, which owns its Consensus.
class SharedLeaderConsensus final : public network::Consensus {
 public:
  explicit SharedLeaderConsensus(network::LeaderConsensus& all) : consensus_(all) {}
  std::int64_t agree(std::uint64_t key, std::int64_t proposal) override {
    return consensus_.agree(key, proposal);
  }

 private:
  network::LeaderConsensus& consensus_;
};

}  // namespace

TransportParts make_parts(MPI_Comm own) {
  auto transport = std::make_unique<MpiTransport>(own);
  auto consensus = std::make_unique<SharedLeaderConsensus>(transport->leader_consensus());
  return {std::move(transport), std::move(consensus)};
}

}  // namespace starling::fabric::mpi_engine
