#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "base/test_name.h"
#include "starling/topology/registry.h"
#include "topology/schedule_checks.h"

namespace starling::topology {
namespace {

constexpr Rank kTenMillion = 10'000'000;

std::vector<Rank> sample(Rank n, int count) {
  std::vector<Rank> ranks{0, 1, 2, n / 2, n / 2 + 1, n - 2, n - 1};
  std::mt19937 generator(1);
  std::uniform_int_distribution<Rank> rank(0, n - 1);
  for (int i = 0; i < count; ++i) ranks.push_back(rank(generator));
  return ranks;
}

std::vector<Step> steps_of(const Schedule& schedule) {
  const Step period =
      schedule.random() || schedule.period() == 0 ? 20 : std::min<Step>(schedule.period(), 60);
  std::vector<Step> steps;
  for (Step step = 0; step < period; ++step) steps.push_back(step);
  steps.push_back(Step{1} << 40);
  return steps;
}

/// The weights that a rank gives sum to one if the rows do.
void expect_row_sums(const Schedule& schedule, const std::vector<Step>& steps,
                     const std::vector<Rank>& ranks) {
  if (schedule.mixing() == Mixing::push_sum) return;
  for (const Step step : steps) {
    for (const Rank rank : ranks) {
      const Exchange exchange = schedule.exchange(step, rank);
      double sum = exchange.self_weight;
      for (const Source& source : exchange.sources) sum += source.weight;
      ASSERT_NEAR(sum, 1, 1e-12) << schedule.name() << " step " << step << " rank " << rank;
    }
  }
}

class LargeTest : public testing::TestWithParam<std::string> {};

TEST_P(LargeTest, TenMillionRanksAgree) {
  const Rank n =
      GetParam().find("hypercube") != std::string::npos && GetParam().find("hyper-") == std::string::npos
          ? Rank{1} << 23
          : kTenMillion;
  const SchedulePtr schedule = make_schedule(GetParam(), n, 13);
  const std::vector<Step> steps = steps_of(*schedule);
  const std::vector<Rank> ranks = sample(n, 60);
  expect_consistent_at(*schedule, steps, ranks);
  expect_row_sums(*schedule, steps, ranks);
}

INSTANTIATE_TEST_SUITE_P(
    Deterministic, LargeTest,
    testing::Values("ring", "one-way-ring", "chain", "grid", "grid(rows=5)", "torus", "exponential",
                    "exponential(base=7)", "symmetric-exponential", "symmetric-exponential(base=2)",
                    "binary-tree", "binary-tree(mirror=yes)", "double-binary-trees", "k-tree(k=2)",
                    "k-tree(k=3)", "k-tree(k=9)", "hypercube", "one-peer-hypercube", "one-peer-exponential",
                    "k-peer-exponential(k=2)", "k-peer-exponential(k=7)", "one-peer-ring", "base(k=1)",
                    "base(k=2)", "base(k=4)", "simple-base(k=1)", "simple-base(k=2)", "simple-base(k=5)",
                    "ceca(k=1)", "ceca(k=2)", "ceca(k=5)", "ceca-1p", "fold-unfold", "aer(local=8)",
                    "hierarchical(outer=ring,local=8)", "hierarchical(outer=ceca(k=2),local=8)",
                    "inner-outer-exponential(local=8)", "inner-outer-ring(local=5)",
                    "periodic(one-peer-exponential,h=7)", "periodic(ceca(k=2),h=9)", "one-peer-of(ring)",
                    "hyper-hypercube(k=4)", "complete", "periodic(ring,h=16)",
                    "live(one-peer-exponential,members=[0..4000000,5000000..9999999])"),
    [](const auto& tested) { return test_name(tested.param); });

INSTANTIATE_TEST_SUITE_P(
    Random, LargeTest,
    testing::Values("d-equistatic", "u-equistatic", "d-equistatic(m=60)", "od-equidyn", "od-equidyn(m=5)",
                    "ou-equidyn", "ou-equidyn(m=5)", "random-matching", "el-oracle(k=1)", "el-oracle(k=6)",
                    "one-peer-exponential(order=permuted)", "one-peer-exponential(order=random)",
                    "hierarchical(outer=od-equidyn,local=8)", "periodic(random-matching,h=3)"),
    [](const auto& tested) { return test_name(tested.param); });

// The largest sizes that a Rank can hold: sums of ranks and hops must not overflow.
class LargestTest : public testing::TestWithParam<std::string> {};

TEST_P(LargestTest, RanksAgreeNearTheLimitOfTheType) {
  for (const Rank n : {Rank{2'147'483'646}, Rank{1'610'612'738}}) {
    const SchedulePtr schedule = make_schedule(GetParam(), n, 13);
    const std::vector<Step> steps = steps_of(*schedule);
    const std::vector<Rank> ranks = sample(n, 20);
    expect_consistent_at(*schedule, steps, ranks);
    expect_row_sums(*schedule, steps, ranks);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LargestTest,
                         testing::Values("ring", "one-way-ring", "chain", "torus", "exponential",
                                         "symmetric-exponential", "binary-tree", "k-tree(k=3)",
                                         "one-peer-exponential", "k-peer-exponential(k=3)", "one-peer-ring",
                                         "base(k=1)", "base(k=3)", "simple-base(k=2)", "ceca(k=1)",
                                         "ceca(k=3)", "ceca-1p", "fold-unfold", "d-equistatic", "od-equidyn",
                                         "ou-equidyn", "random-matching", "el-oracle(k=3)",
                                         "hierarchical(outer=ring,local=2)"),
                         [](const auto& tested) { return test_name(tested.param); });

}  // namespace
}  // namespace starling::topology
