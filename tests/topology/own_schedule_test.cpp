#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/base/error.h"
#include "starling/topology/hierarchical.h"
#include "starling/topology/registry.h"
#include "starling/topology/settable.h"
#include "starling/topology/stored.h"
#include "topology/random_checks.h"
#include "topology/schedule_checks.h"

// Schedules that programs define.
namespace starling::topology {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Entry entry(Rank receiver, Rank sender, double weight) {
  return {receiver, sender, Lane::a, weight};
}

Exchange talks(double own, Rank from, double weight, Rank to, double scale) {
  Exchange exchange;
  exchange.self_weight = own;
  exchange.add_source(from, weight);
  exchange.add_destination(to, scale);
  return exchange;
}

TEST(SettableScheduleTest, UsesTheLastExchangeSet) {
  SettableSchedule schedule(4, 1);
  EXPECT_EQ(schedule.size(), 4);
  const Exchange alone = schedule.exchange(0, 1);
  EXPECT_EQ(alone.self_weight, 1);
  EXPECT_TRUE(alone.sources.empty() && alone.destinations.empty() && alone.group.size() == 0);
  schedule.set(talks(0.25, 3, 0.75, 2, 1.5));
  for (const Step step : {0, 1, 17}) {
    const Exchange told = schedule.exchange(step, 1);
    EXPECT_EQ(told.self_weight, 0.25);
    ASSERT_EQ(told.sources.size(), 1U);
    EXPECT_EQ(told.sources[0].rank, 3);
    EXPECT_EQ(told.sources[0].weight, 0.75);
    ASSERT_EQ(told.destinations.size(), 1U);
    EXPECT_EQ(told.destinations[0].rank, 2);
    EXPECT_EQ(told.destinations[0].scale, 1.5);
  }
  // The exchanges of the other ranks match the one that was set.
  EXPECT_TRUE(schedule.exchange(0, 3).sources.empty());
  const Exchange other = schedule.exchange(0, 2);
  EXPECT_EQ(other.self_weight, 1);
  ASSERT_EQ(other.sources.size(), 1U);
  EXPECT_EQ(other.sources[0].rank, 1);
  EXPECT_EQ(other.sources[0].weight, 1);
  schedule.set({});
  EXPECT_TRUE(schedule.exchange(3, 1).sources.empty());
}

TEST(SettableScheduleTest, RefusesRanksOutOfRange) {
  SettableSchedule schedule(4, 1);
  schedule.set(talks(0.5, 3, 0.5, 2, 1));
  EXPECT_THAT([&] { schedule.set(talks(0.5, 4, 0.5, 2, 1)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank 4 is not one of the 4 ranks 0..3")));
  EXPECT_THAT([&] { schedule.set(talks(0.5, 3, 0.5, -1, 1)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank -1")));
  EXPECT_THAT([&] { schedule.set(talks(0.5, 1, 0.5, 2, 1)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank 1 is this rank itself")));
  EXPECT_THAT([&] { schedule.set(talks(0.5, 3, 0.5, 1, 1)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("this rank itself")));
  EXPECT_EQ(schedule.exchange(0, 1).sources[0].rank, 3) << "a refused exchange has changed something";
}

TEST(StoredScheduleTest, AsIsTakesSumsAndPartsAsTheyAre) {
  // Rows that sum to 0.75, 3 and 0; a negative weight; rank 2 neither sends nor receives.
  const std::vector<Entry> entries = {entry(0, 0, 0.5), entry(0, 1, 0.25), entry(1, 1, 4), entry(1, 0, -1)};
  const auto weights = [&](StoredOptions options) { return schedule_from_weights(3, entries, options); };
  EXPECT_THROW(weights({}), InvalidArgument);
  EXPECT_THROW(weights({.allow_negative = true}), InvalidArgument);
  const auto schedule = weights({.as_is = true});
  Eigen::MatrixXd expected = Eigen::MatrixXd::Zero(3, 3);
  expected << 0.5, 0.25, 0, -1, 4, 0, 0, 0, 0;
  EXPECT_EQ(difference(dense_round(*schedule, 0), expected, 0), "");
  EXPECT_EQ(inconsistency(all_exchanges(*schedule, 0)), "");
  // Ranks out of range and duplicate entries are still errors.
  EXPECT_THROW(schedule_from_weights(1, entries, {.as_is = true}), InvalidArgument);
  EXPECT_THROW(schedule_from_weights(3, {entry(0, 1, 1), entry(0, 1, 1)}, {.as_is = true}), InvalidArgument);
}

TEST(HierarchicalScheduleTest, IsTheFamilysAroundAnyOuter) {
  for (const char* outer : {"ring", "one-peer-exponential", "complete"}) {
    const auto made = hierarchical_schedule(make_schedule(outer, 4), 3);
    const auto known = make_schedule(std::string("hierarchical(outer=") + outer + ",local=3)", 12);
    EXPECT_EQ(made->size(), 12);
    for (Step step = 0; step < 4; ++step) {
      EXPECT_EQ(inconsistency(all_exchanges(*made, step)), "");
      EXPECT_EQ(difference(dense_round(*made, step), dense_round(*known, step), 0), "") << outer << step;
    }
  }
  const std::vector<Entry> entries = {entry(0, 0, 0.25), entry(0, 1, 2), entry(1, 1, 1)};
  const auto own = hierarchical_schedule(schedule_from_weights(2, entries, {.as_is = true}), 2);
  Eigen::MatrixXd expected(4, 4);
  expected << 0.125, 0.125, 1, 1, 0.125, 0.125, 1, 1, 0, 0, 0.5, 0.5, 0, 0, 0.5, 0.5;
  EXPECT_EQ(difference(dense_round(*own, 0), expected, 1e-15), "");
}

}  // namespace
}  // namespace starling::topology
