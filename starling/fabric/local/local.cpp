#include "starling/fabric/local/local.h"

#include <algorithm>
#include <fmt/format.h>
#include <new>
#include <sched.h>

#include "starling/base/error.h"
#include "starling/base/forks.h"
#include "starling/fabric/local/board.h"
#include "starling/fabric/local/futex.h"
#include "starling/fabric/local/inbox.h"
#include "starling/fabric/local/limits.h"
#include "starling/fabric/local/outbox.h"
#include "starling/fabric/local/peer_processes.h"
#include "starling/fabric/local/rendezvous.h"

namespace starling::fabric {
namespace local {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestSleep{50};  // a death wakes no sleeper: check this often
constexpr std::chrono::microseconds kSpin{200};   // if every rank has a core: waking up takes half of this
constexpr std::chrono::microseconds kYield{100};  // with fewer cores: another rank has work for this core
constexpr int kSpins = 64;
constexpr int kYields = 4;

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Creates a region and initialises it, before other ranks see it.
std::shared_ptr<Region> make_region(Rank rank, Rank size) {
  auto region = std::make_shared<Region>(Region::create(fmt::format("starling-{}", rank)));
  region->reserve(heap_offset(rank, size));
  new (region->at(0)) Control;
  for (Rank destination = 0; destination < size; ++destination)
    new (region->at(chunk_offset(destination))) Chunk;
  return region;
}

/// The fabric of one rank over shared memory. Thread-safe.
class LocalFabric final : public Fabric {
 public:
  LocalFabric(Rank rank, Regions regions, PeerProcesses peers, const LocalOptions& options)
      : rank_(rank),
        size_(static_cast<Rank>(regions.size())),
        regions_(std::move(regions)),
        processes_(std::move(peers)),
        board_(rank, regions_),
        outbox_(rank, size_, *regions_[static_cast<std::size_t>(rank)], options.memory_limit,
                [this](Rank peer) { return alive(peer); }),
        inbox_(rank, regions_, [this] { return forks_so_far() == forks_; }),
        enough_cores_(size_ <= usable_cores()),
        forks_(forks_so_far()) {
    control(rank_).presence.store(Presence::present, std::memory_order_release);
  }

  ~LocalFabric() override {
    if (forks_so_far() != forks_) return;  // a forked child must not say that its parent leaves
    control(rank_).presence.store(Presence::left, std::memory_order_release);
    for (Rank r = 0; r < size_; ++r) wake(r);
  }

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }
  Board& board() override { return board_; }

  Outgoing reserve(std::size_t bytes) override {
    check_process();
    return outbox_.reserve(bytes);
  }

  void post(const OutgoingRange& range, const MessageHeader& header, Rank to) override {
    check_process();
    if (!outbox_.post(range, header, to)) return;
    Control& own = control(rank_);
    own.posted_name.store(header.name, std::memory_order_relaxed);
    own.posted_step.store(header.step, std::memory_order_relaxed);
    wake(to);
  }

  bool backlogged(Rank to, std::uint64_t bytes) override { return outbox_.backlogged(to, bytes); }

  std::optional<Arrival> poll(Rank source) override {
    if (!inbox_.waiting(source)) return std::nullopt;
    check_process();  // before any shared memory is written
    auto arrival = inbox_.poll(source);
    if (!arrival) return arrival;
    nudge();  // another thread may be sleeping until this message arrives
    return arrival;
  }

  void nudge() override {
    polled_.fetch_add(1, std::memory_order_seq_cst);
    wake(rank_);
  }

  Rank ranks_per_host() const override { return size_; }

  std::uint32_t wake_count() const override { return polled_.load(std::memory_order_seq_cst); }

  void sleep(std::uint32_t wake_count, std::span<const Rank> sources, Deadline deadline) override {
    check_process();
    const auto news = [&] {
      return std::any_of(sources.begin(), sources.end(), [&](Rank r) { return inbox_.waiting(r); }) ||
             polled_.load(std::memory_order_seq_cst) != wake_count;
    };
    // Reads the clock only after the first spins have failed.
    Deadline awake_until{};
    do {
      for (int i = 0; i < (enough_cores_ ? kSpins : kYields); ++i) {
        if (news()) return;
        if (enough_cores_) {
          relax();
        } else {
          sched_yield();
        }
      }
      const auto now = Clock::now();
      if (awake_until == Deadline{}) awake_until = std::min(deadline, now + (enough_cores_ ? kSpin : kYield));
      if (now >= awake_until) break;
    } while (true);
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now());
    if (left.count() <= 0) return;
    // A sender reads `sleepers` after publishing its message; we look for messages after incrementing
    // `sleepers`. All four accesses are sequentially consistent, so that at least one side sees the other.
    Control& own = control(rank_);
    own.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t bell = own.bell.load(std::memory_order_seq_cst);
    if (!news() && !anything_waiting())
      futex_wait(own.bell, bell, std::min<std::chrono::nanoseconds>(left, kLongestSleep));
    own.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }

  std::uint64_t expose(std::size_t bytes) override {
    check_process();
    return outbox_.expose(bytes);
  }
  void withdraw(std::uint64_t memory, std::size_t bytes) override { outbox_.withdraw(memory, bytes); }
  std::byte* exposed(Rank rank, std::uint64_t memory) override {
    if (!Region::contains(memory, 1))
      refuse_memory_of(rank, fmt::format("its exposed memory at offset {} is outside the region", memory));
    return regions_[static_cast<std::size_t>(rank)]->at(memory);
  }

  void yield_cpu() override {
    if (!enough_cores_) sched_yield();
  }

  bool alive(Rank peer) const override {
    return peer == rank_ || (control(peer).presence.load(std::memory_order_acquire) != Presence::left &&
                             !processes_.dead(peer));
  }

 private:
  Control& control(Rank r) const { return *regions_[static_cast<std::size_t>(r)]->as<Control>(0); }

  void wake(Rank to) const {
    Control& theirs = control(to);
    if (theirs.sleepers.load(std::memory_order_seq_cst) == 0) return;
    theirs.bell.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(theirs.bell);
  }

  bool anything_waiting() const {
    for (Rank r = 0; r < size_; ++r)
      if (r != rank_ && inbox_.waiting(r)) return true;
    return false;
  }

  void check_process() const {
    if (forks_so_far() != forks_)
      throw Error(fmt::format(
          "rank {} belongs to the parent of this process; a forked child cannot use its fabric", rank_));
  }

  Rank rank_;
  Rank size_;
  Regions regions_;
  PeerProcesses processes_;
  LocalBoard board_;
  Outbox outbox_;
  Inbox inbox_;
  std::atomic<std::uint32_t> polled_{0};
  bool enough_cores_;
  int forks_;
};

}  // namespace
}  // namespace local

std::shared_ptr<Fabric> join_local(const std::string& job, Rank rank, Rank size,
                                   const LocalOptions& options) {
  local::check_memory_limits(size);
  auto own = local::make_region(rank, size);
  const auto left_region = [size](Rank absent) {
    const auto region = local::make_region(absent, size);
    region->as<local::Control>(0)->presence.store(local::Presence::left, std::memory_order_release);
    return Descriptor(dup(region->descriptor()));
  };
  local::RendezvousResult peers = local::run_rendezvous(job, rank, size, own->descriptor(),
                                                        options.join_timeout, {options.exited, left_region});
  local::Regions regions;
  regions.reserve(peers.regions.size());
  for (std::size_t r = 0; r < peers.regions.size(); ++r) {
    if (static_cast<Rank>(r) == rank) {
      peers.processes[r] = Descriptor();
      regions.push_back(own);
    } else {
      regions.push_back(std::make_shared<local::Region>(local::Region::adopt(std::move(peers.regions[r]))));
    }
  }
  return std::make_shared<local::LocalFabric>(rank, std::move(regions),
                                              local::PeerProcesses(std::move(peers.processes)), options);
}

std::vector<std::shared_ptr<Fabric>> local_threads(Rank size, const LocalOptions& options) {
  local::check_memory_limits(size);
  local::Regions regions;
  regions.reserve(static_cast<std::size_t>(size));
  for (Rank r = 0; r < size; ++r) regions.push_back(local::make_region(r, size));
  std::vector<std::shared_ptr<Fabric>> fabrics;
  for (Rank r = 0; r < size; ++r)
    fabrics.push_back(std::make_shared<local::LocalFabric>(
        r, regions, local::PeerProcesses(std::vector<Descriptor>(static_cast<std::size_t>(size))), options));
  return fabrics;
}

}  // namespace starling::fabric
