// Covers the waits of starling/flock/operation.cpp: stopped, slow and excluded ranks.
#include <atomic>
#include <cmath>
#include <csignal>
#include <thread>
#include <unistd.h>

#include "flock/reference.h"
#include "starling/fabric/forwarding.h"
#include "starling/fabric/local/local.h"

// Tests waits for peers that send nothing.

namespace starling::flock {
namespace {

using Clock = std::chrono::steady_clock;

class StoppedPeerTest : public FlockTest {};

// On every fabric, also with deadlock detection: the wait is longer than it takes to suspect a deadlock.
TEST_P(StoppedPeerTest, TimesOutButIsNotLost) {
  run([](Flock& flock) {
    const auto pids = flock.allgather(std::vector<std::int64_t>{getpid()});
    std::vector<float> x(1);
    if (flock.rank() == 0) {
      const Stopped stopped(static_cast<pid_t>(pids[1]));
      flock.set_timeout(1500ms);
      const std::string text = message_of<TimedOut>([&] { flock.recv(x, 1, "never sent"); });
      require(text.find("for rank 1") != std::string::npos, text);
      flock.set_timeout(40s);
    }
    flock.allreduce(x);
    require(flock.view().members.size() == static_cast<std::size_t>(flock.size()), "a stopped rank was lost");
  });
}
INSTANTIATE_TEST_SUITE_P(Launchers, StoppedPeerTest, testing::ValuesIn(launches({3}, true)), launch_name);

class DeathBesideStoppedTest : public FlockTest {};

// A stopped rank delays the others only while it is stopped; all of them end with the same members.
TEST_P(DeathBesideStoppedTest, TheOtherRanksContinue) {
  const auto ends = ends_of([](Flock& flock) {
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_schedule("ring");
    const auto pids = flock.allgather(std::vector<std::int64_t>{getpid()});
    std::vector<float> x(8, 1);
    flock.neighbor_allreduce(x);
    if (flock.rank() == 2) raise(SIGKILL);
    if (flock.rank() == 0) {
      const Stopped stopped(static_cast<pid_t>(pids[1]));
      std::this_thread::sleep_for(300ms);
    }
    for (int step = 0; step < 20; ++step) flock.neighbor_allreduce(x);
    flock.allreduce(x);
    require(flock.view().members == std::vector<Rank>{0, 1}, "other members");
    require(std::abs(x[0] - 2) < 1e-5, fmt::format("{} instead of the sum of two", x[0]));
  });
  for (const std::size_t r : {0, 1}) EXPECT_TRUE(ends[r].ok) << "rank " << r << ": " << ends[r].message;
}
INSTANTIATE_TEST_SUITE_P(Launchers, DeathBesideStoppedTest, testing::ValuesIn(launches({3}, true)),
                         launch_name);

/// Simulates a slow message: bytes arrive until `end`.
class Trickling final : public ForwardingFabric {
 public:
  Trickling(std::shared_ptr<Fabric> inner, Clock::time_point end)
      : ForwardingFabric(std::move(inner)), end_(end) {}
  std::uint64_t bytes_from(Rank) const override {
    ended_ = Clock::now() >= end_;
    return ended_ ? bytes_.load() : ++bytes_;
  }
  /// Whether no more bytes arrived at the last query.
  bool ended() const { return ended_; }

 private:
  Clock::time_point end_;
  mutable std::atomic<bool> ended_{false};
  mutable std::atomic<std::uint64_t> bytes_{0};
};

TEST(SlowMessages, EveryPartOfAMessageRestartsTheTimeout) {
  auto fabrics = local_threads(2);
  const auto fabric = std::make_shared<Trickling>(fabrics[0], Clock::now() + 900ms);
  Flock flock(fabric);
  flock.set_timeout(300ms);
  std::vector<float> x(1);
  EXPECT_THROW(flock.recv(x, 1), TimedOut);
  EXPECT_TRUE(fabric->ended()) << "timed out although bytes came in";
}

TEST(Interruption, IsNoTimeout) {
  auto fabrics = local_threads(2);
  Flock flock(fabrics[0]);
  flock.interrupt(100ms);
  std::vector<float> x(1);
  EXPECT_THAT(message_of<TimedOut>([&] { flock.recv(x, 1); }),
              testing::HasSubstr("s for rank 1 and was interrupted. "));
  flock.set_timeout(100ms);
  EXPECT_THAT(message_of<TimedOut>([&] { flock.recv(x, 1); }),
              testing::HasSubstr("s for rank 1, longer than the timeout. "));
}

/// Reports this rank as excluded from the tenth query on.
class Out final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;
  std::string exclusion_reason() const override { return ++asked_ >= 10 ? "rank 0 was excluded" : ""; }

 private:
  mutable std::atomic<int> asked_{0};
};

TEST(Exclusion, EndsWaitsAndFurtherOperations) {
  auto fabrics = local_threads(2);
  Flock flock(std::make_shared<Out>(fabrics[0]));
  std::vector<float> x(1);
  EXPECT_THROW(flock.recv(x, 1), Excluded);
  EXPECT_THROW(flock.send(x, 1), Excluded);
}

}  // namespace
}  // namespace starling::flock
