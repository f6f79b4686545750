// Covers starling/flock/window.h with ranks that die at random moments, in both kinds of memory.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>
#include <stdexcept>
#include <sys/mman.h>

#include "flock/deaths.h"
#include "flock/flock_fixture.h"
#include "kernel/device_block.h"

// Windows with SIGKILL and SIGSTOP at random moments. Among the survivors nothing is lost or counted twice; a
// dead rank's deposit is there as a whole or not at all; mutexes are released, and no rank hangs.

namespace starling::flock {
namespace {

constexpr std::size_t kMostRanks = 8;

/// The log of one rank, in memory that outlives it.
struct Account {
  std::atomic<std::int64_t> begun[kMostRanks];      // amounts given to each rank, counted before the call
  std::atomic<std::int64_t> given[kMostRanks];      // the same, counted after the call
  std::atomic<std::int64_t> collected[kMostRanks];  // amounts collected from each rank at the end
  std::atomic<std::int64_t> rounds;
  std::atomic<Rank> inside;  // rank + 1 of the holder of this rank's mutex
};

class Ledger {
 public:
  Ledger() {
    void* memory = mmap(nullptr, sizeof(Account) * kMostRanks, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    accounts_ = static_cast<Account*>(memory);
  }
  ~Ledger() { munmap(accounts_, sizeof(Account) * kMostRanks); }
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  Account& operator[](Rank rank) const { return accounts_[rank]; }

 private:
  Account* accounts_;
};

/// One rank's part. The amount that rank i gives travels in element i of every row, so that the receiver
/// knows its source, and as p.
class Trader {
 public:
  Trader(Flock& flock, const Ledger& ledger, const std::map<Rank, unsigned>& doomed, unsigned seed,
         MemoryKind memory)
      : flock_(flock),
        ledger_(ledger),
        doomed_(doomed),
        random_(seed * 100 + static_cast<unsigned>(flock.rank())),
        n_(static_cast<std::size_t>(flock.size())),
        rows_(1 + seed * 37 % 400),
        purse_(n_ * rows_, memory),
        news_(n_ * rows_, memory),
        seen_(n_ * rows_, memory),
        last_heard_(n_),
        give_(flock.create_window(purse_.buffer(), "give", {.zero = true, .readable = seed % 2 == 0})),
        tell_(flock.create_window(news_.buffer(), "tell")) {}

  void trade() {
    const std::vector<void (Trader::*)()> deeds = {&Trader::give, &Trader::give, &Trader::collect,
                                                   &Trader::tell, &Trader::hear, &Trader::lock_two};
    const auto until = std::chrono::steady_clock::now() + 40ms;
    while (std::chrono::steady_clock::now() < until) {
      (this->*deeds[random_() % deeds.size()])();
      ++mine().rounds;
    }
  }

  /// Called after all survivors have given their last amount.
  void settle() {
    collect();
    std::int64_t sum = 0;
    const auto purse = purse_.values();
    for (std::size_t giver = 0; giver < n_; ++giver) {
      mine().collected[giver] = purse[giver];
      sum += purse[giver];
    }
    require(give_.p() == 1 + static_cast<double>(sum), fmt::format("p is {}, not 1 + {}", give_.p(), sum));
    for (Rank rank = 0; rank < flock_.size(); ++rank) lock({rank});
  }

 private:
  Account& mine() const { return ledger_[flock_.rank()]; }
  Rank draw() { return static_cast<Rank>(random_() % n_); }

  void give() {
    const auto destinations = give_.destinations();
    if (destinations.empty()) return;
    const Rank to = destinations[random_() % destinations.size()];
    const auto amount = static_cast<std::int64_t>(1 + random_() % 9);
    const std::vector<std::int64_t> own = purse_.values();
    const double p = give_.p();
    std::vector<std::int64_t> gift(own.size());
    for (std::size_t i = static_cast<std::size_t>(flock_.rank()); i < gift.size(); i += n_) gift[i] = amount;
    purse_.set(gift);
    give_.set_p(static_cast<double>(amount));
    mine().begun[to] += amount;
    give_.accumulate(Window::Weights{{to, 1}});
    mine().given[to] += amount;
    purse_.set(own);
    give_.set_p(p);
  }

  void collect() {
    give_.update_then_collect();
    const auto purse = purse_.values();
    for (std::size_t i = 0; i < purse.size(); ++i) require(purse[i] == purse[i % n_], "torn amounts");
  }

  void tell() {
    news_.set(std::vector<std::int64_t>(n_ * rows_, ++told_));
    tell_.put();
  }

  void hear() {
    for (const Rank source : tell_.sources()) {
      tell_.update_into(seen_.buffer(), 0, {{source, 1}});
      const auto seen = seen_.values();
      for (const std::int64_t value : seen) require(value == seen[0], "torn news");
      std::int64_t& last = last_heard_[static_cast<std::size_t>(source)];
      require(seen[0] >= last, "old news after new");
      last = seen[0];
    }
  }

  void lock_two() { lock({draw(), draw()}); }

  void lock(const std::set<Rank>& ranks) {
    try {
      const auto held = give_.mutex({ranks.begin(), ranks.end()});
      for (const Rank rank : ranks) {
        const Rank before = ledger_[rank].inside.exchange(flock_.rank() + 1);
        require(before == 0 || doomed_.contains(before - 1),
                fmt::format("ranks {} and {} both hold a mutex", before - 1, flock_.rank()));
      }
      for (const Rank rank : ranks) ledger_[rank].inside = 0;
    } catch (const InvalidArgument& error) {
      // Names the mutex of a rank that was lost before the window was created.
      if (std::string(error.what()).find("has no part in this window") == std::string::npos) throw;
      require(std::any_of(ranks.begin(), ranks.end(), [&](Rank rank) { return doomed_.contains(rank); }),
              error.what());
    } catch (const PeerLost& lost) {
      // Over a network, a dead rank's mutexes cannot be locked
      require(doomed_.contains(lost.peer()), lost.what());
    }
  }

  Flock& flock_;
  const Ledger& ledger_;
  const std::map<Rank, unsigned>& doomed_;
  std::mt19937 random_;
  std::size_t n_;
  std::size_t rows_;
  kernel::MemoryBlock<std::int64_t> purse_, news_, seen_;
  std::int64_t told_ = 0;
  std::vector<std::int64_t> last_heard_;
  Window give_;
  Window tell_;
};

void check_accounts(const DeathRun& run, const Ledger& ledger) {
  const std::vector<Rank> alive = run.survivors();
  for (const Rank rank : alive) {
    ASSERT_TRUE(run.end(rank).ok) << "rank " << rank << ": " << run.end(rank).message;
    for (Rank giver = 0; giver < run.size(); ++giver) {
      const std::int64_t collected = ledger[rank].collected[giver];
      const std::int64_t begun = ledger[giver].begun[rank];
      const std::int64_t given = ledger[giver].given[rank];
      const bool lives = std::find(alive.begin(), alive.end(), giver) != alive.end();
      if (lives || run.shares()) {
        EXPECT_GE(collected, given) << giver << " to " << rank;
      }
      EXPECT_LE(collected, begun) << giver << " to " << rank;
      EXPECT_TRUE(!lives || begun == given);
    }
  }
}

void soak_windows(MemoryKind memory) {
  unsigned killed = 0;
  std::int64_t rounds = 0;
  for (unsigned seed = 0; seed < soak_runs(); ++seed) {
    std::mt19937 random(seed);
    const auto n = static_cast<Rank>(2 + random() % (kMostRanks - 1));
    const auto draw = [&] { return static_cast<Rank>(random() % static_cast<unsigned>(n)); };
    Mishaps mishaps;
    mishaps.kill_after[draw()] = static_cast<unsigned>(random() % 40'000);
    if (n > 3 && random() % 2 == 0) mishaps.kill_after[draw()] = static_cast<unsigned>(random() % 40'000);
    if (random() % 2 == 0) mishaps.stop_after[draw()] = static_cast<unsigned>(random() % 40'000);
    const std::string spec = random() % 2 == 0 ? "complete" : "exponential";
    const Ledger ledger;
    DeathRun run(n, mishaps, 0);
    run.run(
        [&](const std::shared_ptr<Fabric>& fabric) {
          Flock flock(fabric);
          flock.on_peer_failure(OnPeerFailure::reweight);
          flock.set_timeout(30s);
          flock.set_schedule(spec);
          Trader trader(flock, ledger, mishaps.kill_after, seed, memory);
          trader.trade();
          flock.barrier();
          trader.settle();
          flock.barrier();  // others want this rank's mutex
        },
        memory == MemoryKind::host ? launchers() : device_launchers());
    SCOPED_TRACE(fmt::format("seed {}: {} on {} ranks", seed, spec, n));
    ASSERT_NO_FATAL_FAILURE(check_accounts(run, ledger));
    ASSERT_FALSE(testing::Test::HasFailure());
    killed += static_cast<unsigned>(static_cast<std::size_t>(n) - run.survivors().size());
    for (Rank rank = 0; rank < n; ++rank) rounds += ledger[rank].rounds;
  }
  EXPECT_GT(killed, 0U) << "no rank was killed in time: the moments are too late for this machine";
  EXPECT_GT(rounds, 0);
}

TEST(SoakTest, WindowsOfTheKilledAndTheStopped) {
  soak_windows(MemoryKind::host);
}

TEST(SoakTest, DeviceWindowsOfTheKilledAndTheStopped) {
  soak_windows(MemoryKind::cuda);
}

}  // namespace
}  // namespace starling::flock
