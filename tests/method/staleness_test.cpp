#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "method/on_flock.h"

// Tests how far asynchronous ranks drift apart, and how old the values are that they use.

namespace starling::method {
namespace {

struct Lead {
  Step most = 0;  // of rank 0 over the slow rank
  Step oldest = 0;
};

// Rank 1 sleeps in every step; rank 0 runs 60 steps.
Lead lead_of_the_fast_one(const std::string& method) {
  const SharedNumbers<Step> made(2);
  const SharedNumbers<Step> found(2);
  const auto ends = launchers()[0].run(2, [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(fabric);
    flock.set_timeout(30s);
    const Rank rank = flock.rank();
    std::vector<double> x(10, 1.0 * rank);
    std::vector<double> gradient(10);
    Driver driver = drive(flock, buffer_of(x), buffer_of(gradient),
                          {.method = method, .topology = "ring", .optimizer = "sgd(lr=0.01)"});
    for (Step step = 0; step < 60; ++step) {
      driver.begin();
      if (rank == 1) std::this_thread::sleep_for(3ms);
      gradient = x;
      driver.finish();
      std::atomic_ref(made.data()[rank]).store(step + 1);
      if (rank == 0) {
        const Step lead = step + 1 - std::atomic_ref(made.data()[1]).load();
        found.data()[0] = std::max(found.data()[0], lead);
      }
    }
    driver.settle();
    if (rank == 0) found.data()[1] = driver.staleness().oldest;
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.ok) << end.message;
  return {found.data()[0], found.data()[1]};
}

class StalenessTest : public testing::TestWithParam<std::string> {};

TEST_P(StalenessTest, IsBoundedOnRequest) {
  const Lead free = lead_of_the_fast_one(GetParam());
  EXPECT_GT(free.most, 20) << "an unbounded method waited";
  const Lead bounded = lead_of_the_fast_one(GetParam() + "(staleness=3)");
  EXPECT_LE(bounded.most, 4) << "one more step may be made before the other rank's step is known";
  EXPECT_LE(bounded.oldest, 4);
}

INSTANTIATE_TEST_SUITE_P(Windows, StalenessTest, testing::Values("win-put", "async-push-sum", "ad-psgd"),
                         [](const testing::TestParamInfo<std::string>& test) {
                           std::string name = test.param;
                           for (char& letter : name)
                             if (letter == '-') letter = '_';
                           return name;
                         });

// A rank waits for an average once the allowed number of steps has passed.
TEST(AverageStalenessTest, IsBoundedOnRequest) {
  EXPECT_LE(lead_of_the_fast_one("async-average(staleness=3)").most, 7);
  EXPECT_LE(lead_of_the_fast_one("async-average(staleness=3)").oldest, 3);
}

}  // namespace
}  // namespace starling::method
