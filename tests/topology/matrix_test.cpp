#include "starling/topology/matrix.h"

#include <cmath>
#include <gtest/gtest.h>

#include "starling/topology/mixer.h"
#include "starling/topology/registry.h"

namespace starling::topology {
namespace {

// Computes from the printed entries alone, as another program would.
TEST(RoundMatrixTest, EntriesIntoBothBlocksReplayComposedCeca) {
  for (const char* spec :
       {"ceca", "ceca(k=2)", "ceca-1p", "periodic(ceca,h=3)", "live(ceca,members=[0,1,3,4,7,8])",
        "hierarchical(outer=ceca,local=2)", "hierarchical(outer=periodic(ceca(k=2),h=4),local=5)"}) {
    const SchedulePtr schedule = make_schedule(spec, 10);
    std::vector<double> a(10);
    std::vector<double> b(10, 0.0);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<double>(i * i));
    Mixer mixer(schedule);
    mixer.start(a);
    for (Step step = 0; step < 9; ++step) {
      const RoundMatrix round(*schedule, step);
      std::vector<double> next_a(10, 0.0);
      std::vector<double> next_b(10, 0.0);
      const auto add = [&](const std::vector<Entry>& entries, std::vector<double>& into) {
        for (const Entry& entry : entries)
          into[static_cast<std::size_t>(entry.receiver)] +=
              entry.weight * (entry.lane == Lane::a ? a : b)[static_cast<std::size_t>(entry.sender)];
      };
      add(round.entries(Lane::a), next_a);
      add(round.entries(Lane::b), next_b);
      a = next_a;
      b = next_b;
      mixer.advance();
      for (std::size_t i = 0; i < a.size(); ++i)
        ASSERT_NEAR(a[i], mixer.values()[i], 1e-14) << spec << " step " << step;
    }
  }
}

TEST(PeriodicTest, DeepNestingTakesNoTime) {
  std::string text = "ring";
  for (int depth = 0; depth < 31; ++depth) text = "periodic(" + text + ",h=2)";
  EXPECT_EQ(make_schedule(text, 4)->period(), 2);
}

TEST(OnePeerExponentialTest, TwoRanksHaveNothingToDraw) {
  for (const char* order : {"cyclic", "permuted", "random"}) {
    const SchedulePtr schedule = make_schedule(std::string("one-peer-exponential(order=") + order + ")", 2);
    EXPECT_EQ(schedule->period(), 1);
    EXPECT_FALSE(schedule->random());
    EXPECT_EQ(schedule->known_rho(), 0.0);
  }
}

}  // namespace
}  // namespace starling::topology
