#include "starling/simulate/time_model.h"

#include <gtest/gtest.h>

namespace starling::simulate {
namespace {

TEST(TimeModel, Defaults) {
  const TimeModel model;
  EXPECT_EQ(model.compute_seconds(3, 17), 1e-3);
  EXPECT_EQ(model.latency(0, 1), 50e-6);
  EXPECT_EQ(model.seconds_per_byte(0, 1), 0.8e-9);  // 10 Gbit/s
}

TEST(TimeModel, NodesDiffer) {
  TimeModel model;
  model.compute = 2;
  model.compute_of = {5, 6};
  EXPECT_EQ(model.compute_seconds(1, 0), 6);
  EXPECT_EQ(model.compute_seconds(2, 0), 2);
}

TEST(TimeModel, HostsAndRules) {
  TimeModel model;
  model.link = {1, 10};
  model.inside = {2, 20};
  model.ranks_per_host = 4;
  model.rules = {{{0}, {}, {3, 30}}, {{0}, {2, 5}, {4, 40}}};
  EXPECT_EQ(model.latency(1, 3), 2);
  EXPECT_EQ(model.seconds_per_byte(3, 4), 10);
  EXPECT_EQ(model.latency(0, 1), 3) << "rules come before hosts";
  EXPECT_EQ(model.seconds_per_byte(0, 5), 40) << "the last rule that matches";
  EXPECT_EQ(model.latency(5, 0), 1) << "rules have a direction";
}

TEST(TimeModel, StragglersAreSlowAtTheirTimes) {
  TimeModel model;
  model.stragglers = {{{1, 4}, 3, 1, 2, 0.5}, {{4}, 1, 1, 1, 10}};
  EXPECT_DOUBLE_EQ(model.compute_seconds(1, 0), 1e-3);
  EXPECT_DOUBLE_EQ(model.compute_seconds(1, 1), 1e-3);
  EXPECT_DOUBLE_EQ(model.compute_seconds(1, 2), 0.502);
  EXPECT_DOUBLE_EQ(model.compute_seconds(1, 5), 0.502);
  EXPECT_DOUBLE_EQ(model.compute_seconds(4, 2), 10.502) << "all that match apply";
  EXPECT_DOUBLE_EQ(model.compute_seconds(2, 2), 1e-3);
}

TEST(TimeModel, ChanceIsAPureFunctionOfSeedNodeAndStep) {
  TimeModel model;
  model.stragglers = {{{}, 1, 0.25, 3, 0}};
  int slow = 0, alike = 0, alike_seeds = 0;
  TimeModel other = model;
  other.seed = 1;
  constexpr Step kSteps = 4000;
  for (Step step = kSteps; step-- > 0;) {
    const double seconds = model.compute_seconds(5, step);
    EXPECT_TRUE(seconds == 1e-3 || seconds == 3e-3);
    EXPECT_EQ(seconds, model.compute_seconds(5, step));
    slow += seconds > 2e-3 ? 1 : 0;
    alike += seconds == model.compute_seconds(6, step) ? 1 : 0;
    alike_seeds += seconds == other.compute_seconds(5, step) ? 1 : 0;
  }
  EXPECT_NEAR(slow, kSteps / 4, 150);             // five standard deviations
  EXPECT_NEAR(alike, kSteps * 0.625, 160);        // nodes are independent
  EXPECT_NEAR(alike_seeds, kSteps * 0.625, 160);  // and so are different seeds
}

}  // namespace
}  // namespace starling::simulate
