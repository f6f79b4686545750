#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <signal.h>

#include "base/test_name.h"
#include "flock/deaths.h"
#include "method/on_flock.h"

// A rank is killed between two steps. Asynchronous methods do not wait for it, and stop averaging with the
// values it left behind.

namespace starling::method {
namespace {

constexpr Rank kRanks = 4;
constexpr Rank kVictim = 2;
constexpr Step kEnd = 30;  // the step in which the victim dies

struct Case {
  std::string method;
  std::string topology;
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.method << " on " << one.topology;
}

class DeathBetweenStepsTest : public testing::TestWithParam<Case> {};

// Rank r pulls x toward r + 1; the victim, in its few steps, pulls it toward 1000.
TEST_P(DeathBetweenStepsTest, TheSurvivorsReachTheirOwnOptimum) {
  DeathRun run(kRanks, {}, 0);
  run.run([&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.on_peer_failure(OnPeerFailure::reweight);
    flock.set_timeout(std::chrono::seconds(20));
    std::vector<double> x(64, 0.0), gradient(64);
    Driver driver =
        drive(flock, buffer_of(x), buffer_of(gradient),
              {.method = GetParam().method, .topology = GetParam().topology, .optimizer = "sgd(lr=0.02)"});
    const double target = flock.rank() == kVictim ? 1000 : flock.rank() + 1;
    for (Step step = 0; step < 2000; ++step) {
      if (flock.rank() == kVictim && step == kEnd) raise(SIGKILL);
      driver.begin();
      for (std::size_t k = 0; k < x.size(); ++k) gradient[k] = x[k] - target;
      driver.finish();
    }
    driver.settle();
    const double best = (1 + 2 + 4) / 3.0;
    for (const double element : x)
      require(std::abs(element - best) < 0.3, fmt::format("x is {}, the best is {}", element, best));
    if (!GetParam().method.starts_with("async-push-sum")) return;
    const auto shares = flock.allgather(std::vector{driver[0].numbers("p", 1, 1)[0]});
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    require(sum > 0.5 && sum < kRanks + 1e-9, fmt::format("the shares sum to {}", sum));
  });
  EXPECT_EQ(run.end(kVictim).signal, SIGKILL);
  for (Rank rank = 0; rank < kRanks; ++rank)
    EXPECT_TRUE(rank == kVictim || run.end(rank).ok) << run.end(rank).message;
}

// Bounds the staleness of asynchronous methods, so that a faster rank does not get more weight.
INSTANTIATE_TEST_SUITE_P(
    All, DeathBetweenStepsTest,
    testing::Values(Case{"win-put(staleness=2)", "complete"}, Case{"win-put(staleness=0)", "ring"},
                    Case{"async-push-sum(staleness=2)", "complete"},
                    Case{"async-push-sum(staleness=0)", "ring"}, Case{"ad-psgd(staleness=2)", "complete"},
                    Case{"async-average(staleness=2)", "ring"}, Case{"choco(codec=fp16,gamma=0.5)", "ring"},
                    Case{"low-precision-ring", "ring"}, Case{"bytegrad", "ring"}, Case{"qsgd", "ring"},
                    Case{"powersgd", "ring"}, Case{"compressed-allreduce(codec=fp16)", "ring"},
                    Case{"lag(threshold=0.0001)", "ring"}),
    [](const testing::TestParamInfo<Case>& test) {
      return test_name(test.param.method + "_" + test.param.topology);
    });

}  // namespace
}  // namespace starling::method
