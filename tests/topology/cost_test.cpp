#include "starling/topology/cost.h"

#include <gtest/gtest.h>
#include <string>

#include "starling/topology/matrix.h"
#include "starling/topology/registry.h"

namespace starling::topology {
namespace {

StepCost period_cost(const std::string& text, Rank n) {
  const SchedulePtr schedule = make_schedule(text, n);
  return step_cost(*schedule, schedule->period());
}

void expect_cost(const StepCost& cost, double models, double latencies, double messages, Rank peers) {
  EXPECT_DOUBLE_EQ(cost.models, models);
  EXPECT_DOUBLE_EQ(cost.latencies, latencies);
  EXPECT_DOUBLE_EQ(cost.messages, messages);
  EXPECT_EQ(cost.peers, peers);
}

TEST(CostTest, NeighborsOfAStaticGraph) {
  expect_cost(period_cost("ring", 10), 2, 1, 20, 2);
  expect_cost(period_cost("one-way-ring", 10), 1, 1, 10, 1);
  expect_cost(period_cost("exponential", 16), 4, 1, 64, 4);
  expect_cost(period_cost("star", 10), 9, 1, 18, 9);  // the center is the busiest
  expect_cost(period_cost("chain", 10), 2, 1, 18, 2);
  expect_cost(period_cost("torus", 16), 4, 1, 64, 4);
  expect_cost(period_cost("ring", 1), 0, 0, 0, 0);
}

TEST(CostTest, OnePeerARound) {
  expect_cost(period_cost("one-peer-exponential", 16), 1, 1, 16, 1);
  expect_cost(period_cost("one-peer-hypercube", 16), 1, 1, 16, 1);
  expect_cost(period_cost("ceca", 12), 1, 1, 12, 1);
  expect_cost(period_cost("ceca-1p", 12), 1, 1, 12, 1);
}

TEST(CostTest, AMeanOfGRanksIsARingAllReduce) {
  expect_cost(period_cost("complete", 10), 1.8, 18, 18, 2);
  expect_cost(period_cost("complete", 2), 1, 2, 2, 1);
  // Within machines of four ranks: 2 * 3/4 models in 6 messages; then one message to each neighboring
  // machine.
  expect_cost(period_cost("hierarchical(outer=ring,local=4)", 12), 2 + 1.5, 1 + 6, 12 * 1.5 + 24, 2 + 2);
}

TEST(CostTest, AveragesOverTheRoundsOfAPeriod) {
  // Three rounds of a ring and one global mean of eight.
  expect_cost(period_cost("periodic(ring,h=4)", 8), (3 * 2 + 2.0 * 7 / 8) / 4, (3 * 1 + 14.0) / 4,
              (3 * 16 + 14.0) / 4, 2);
  // fold-unfold of six: two ranks send everything, two rounds of pairs among four, two ranks get half back.
  expect_cost(period_cost("fold-unfold", 6), 1, 1, (2 + 4 + 4 + 2) / 4.0, 1);
  const SchedulePtr schedule = make_schedule("fold-unfold", 6);
  expect_cost(step_cost(*schedule, 1), 1, 1, 2, 1);  // only the rounds asked for
}

// Counts messages in two ways: per rank from the exchanges, and from the round's matrix.
TEST(CostTest, MessagesAgreeWithTheRoundsMatrices) {
  for (const std::string text :
       {"ring", "grid", "star", "complete", "base(k=2)", "ceca(k=3)", "aer(local=3)",
        "hierarchical(outer=star,local=3)", "inner-outer-ring(local=3)", "one-peer-of(star)",
        "periodic(exponential,h=3)", "live(ring,members=[1..5])"}) {
    const SchedulePtr schedule = make_schedule(text, 12);
    double messages = 0;
    for (Step t = 0; t < schedule->period(); ++t) messages += RoundMatrix(*schedule, t).messages();
    EXPECT_NEAR(step_cost(*schedule, schedule->period()).messages,
                messages / static_cast<double>(schedule->period()), 1e-12)
        << text;
  }
}

TEST(CostTest, TimeIsModelsOverBandwidthPlusLatencies) {
  const LinkModel link{1e9, 1e-5};
  EXPECT_DOUBLE_EQ(period_cost("ring", 10).seconds(5e8, link), 2 * 0.5 + 1e-5);
  const LinkModel ten_gigabit;
  EXPECT_DOUBLE_EQ(ten_gigabit.bandwidth, 10e9 / 8);
  EXPECT_DOUBLE_EQ(ten_gigabit.latency, 50e-6);
}

// The two centralized rows of the table: n M/B + L with a server, 2 M/B + 2 n L on a ring.
TEST(CostTest, CentralizedRows) {
  expect_cost(parameter_server_cost(32), 32, 1, 64, 32);
  expect_cost(ring_allreduce_cost(32), 2, 64, 62, 2);
}

}  // namespace
}  // namespace starling::topology
