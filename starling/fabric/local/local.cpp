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
#include "starling/fabric/local/peers.h"
#include "starling/fabric/local/rendezvous.h"

namespace starling {
namespace local {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestSleep{50};  // deaths ring no bell: look for them this often
constexpr std::chrono::microseconds kSpin{200};   // with a core for every rank: waking up takes half of this
constexpr std::chrono::microseconds kYield{100};  // with fewer: somebody else has work for this core
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

/// A region of one's own, initialised before others see it.
std::shared_ptr<Region> make_region(Rank rank, Rank size) {
  auto region = std::make_shared<Region>(Region::create(fmt::format("starling-{}", rank)));
  region->reserve(heap_offset(rank, size));
  new (region->at(0)) Control;
  for (Rank destination = 0; destination < size; ++destination)
    new (region->at(chunk_offset(destination))) Chunk;
  return region;
}

class LocalFabric final : public Fabric {
 public:
  LocalFabric(Rank rank, Regions regions, Peers peers, const LocalOptions& options)
      : rank_(rank),
        size_(static_cast<Rank>(regions.size())),
        regions_(std::move(regions)),
        peers_(std::move(peers)),
        board_(rank, regions_),
        outbox_(rank, size_, *regions_[static_cast<std::size_t>(rank)], options.memory_limit,
                [this](Rank peer) { return alive(peer); }),
        inbox_(rank, regions_, [this] { return forks_so_far() == forks_; }),
        enough_cores_(size_ <= usable_cores()),
        forks_(forks_so_far()) {
    control(rank_).presence.store(Presence::present, std::memory_order_release);
  }

  ~LocalFabric() override {
    if (forks_so_far() != forks_) return;  // a forked child takes nobody's leave
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
    check_process();  // before anything shared is written
    auto arrival = inbox_.poll(source);
    if (!arrival) return arrival;
    nudge();  // another thread may sleep for what this one took
    return arrival;
  }

  void nudge() override {
    polled_.fetch_add(1, std::memory_order_seq_cst);
    wake(rank_);
  }

  Rank ranks_per_host() const override { return size_; }

  std::uint32_t ticket() const override { return polled_.load(std::memory_order_seq_cst); }

  void sleep(std::uint32_t ticket, std::span<const Rank> sources, Deadline deadline) override {
    check_process();
    const auto news = [&] {
      return std::any_of(sources.begin(), sources.end(), [&](Rank r) { return inbox_.waiting(r); }) ||
             polled_.load(std::memory_order_seq_cst) != ticket;
    };
    // The clock is looked at only when it takes longer.
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
    // Who posts looks at `sleepers` after its message is there, we look for messages after `sleepers`: one of
    // the two sees the other.
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
      refuse_memory_of(rank, fmt::format("what it exposed at {} is outside", memory));
    return regions_[static_cast<std::size_t>(rank)]->at(memory);
  }

  void give_way() override {
    if (!enough_cores_) sched_yield();
  }

  bool alive(Rank peer) const override {
    return peer == rank_ ||
           (control(peer).presence.load(std::memory_order_acquire) != Presence::left && !peers_.dead(peer));
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
          "rank {} was joined by this process's parent; a forked child cannot speak for it", rank_));
  }

  Rank rank_;
  Rank size_;
  Regions regions_;
  Peers peers_;
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
    return local::Descriptor(dup(region->descriptor()));
  };
  local::Meeting meeting =
      local::meet(job, rank, size, own->descriptor(), options.join_timeout, {options.exited, left_region});
  local::Regions regions;
  regions.reserve(meeting.regions.size());
  for (std::size_t r = 0; r < meeting.regions.size(); ++r) {
    if (static_cast<Rank>(r) == rank) {
      meeting.processes[r] = local::Descriptor();
      regions.push_back(own);
    } else {
      regions.push_back(std::make_shared<local::Region>(local::Region::adopt(std::move(meeting.regions[r]))));
    }
  }
  return std::make_shared<local::LocalFabric>(rank, std::move(regions),
                                              local::Peers(std::move(meeting.processes)), options);
}

std::vector<std::shared_ptr<Fabric>> local_threads(Rank size, const LocalOptions& options) {
  local::check_memory_limits(size);
  local::Regions regions;
  regions.reserve(static_cast<std::size_t>(size));
  for (Rank r = 0; r < size; ++r) regions.push_back(local::make_region(r, size));
  std::vector<std::shared_ptr<Fabric>> fabrics;
  for (Rank r = 0; r < size; ++r)
    fabrics.push_back(std::make_shared<local::LocalFabric>(
        r, regions, local::Peers(std::vector<local::Descriptor>(static_cast<std::size_t>(size))), options));
  return fabrics;
}

}  // namespace starling
