#include "starling/simulate/stamp.h"

#include <gtest/gtest.h>
#include <thread>

namespace starling::simulate {
namespace {

TEST(StampTest, ResultsOfAnEarlierPassAreVisible) {
  Stamp stamp;
  EXPECT_FALSE(stamp.is_there(0, 1));
  stamp.set(4, 9);
  EXPECT_FALSE(stamp.is_there(4, 9));
  EXPECT_TRUE(stamp.is_there(4, 10));
  EXPECT_FALSE(stamp.is_there(2, 10));
  EXPECT_FALSE(stamp.is_there(6, 10));
}

// Another thread reads while the stamp is set: it must never see the new round with the old pass.
TEST(StampTest, NothingOfThisPassIsSeenByAnotherThread) {
  constexpr Step kRounds = 200'000;
  Stamp stamp;
  std::atomic<std::int64_t> pass{0};
  std::atomic<bool> seen{false};
  std::jthread asks([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const std::int64_t now = pass.load();
      if (stamp.is_there(now, now) && pass.load() == now) seen = true;
    }
  });
  for (Step round = 1; round < kRounds; ++round) {
    pass = round;
    stamp.set(round, round);
  }
  asks.request_stop();
  asks.join();
  EXPECT_FALSE(seen);
}

}  // namespace
}  // namespace starling::simulate
