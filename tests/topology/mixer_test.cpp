#include "starling/topology/mixer.h"

#include <cmath>
#include <gtest/gtest.h>
#include <string>

#include "base/test_name.h"
#include "starling/base/integer.h"
#include "starling/topology/registry.h"
#include "topology/random_checks.h"
#include "topology/schedule_checks.h"

namespace starling::topology {
namespace {

/// The Mixer's expected state by dense products: x; or two blocks; or x and the push-sum weight.
struct DenseMixer {
  Eigen::MatrixXd x;
  Eigen::MatrixXd b;
  Eigen::VectorXd p;
  Eigen::MatrixXd estimate;

  explicit DenseMixer(const Eigen::MatrixXd& start)
      : x(start),
        b(Eigen::MatrixXd::Zero(start.rows(), start.cols())),
        p(Eigen::VectorXd::Ones(start.rows())),
        estimate(start) {}

  void advance(const Schedule& schedule, Step step) {
    const reference::DenseRound round = multiply_out(all_exchanges(schedule, step));
    const Eigen::MatrixXd a = x;
    x = reference::product(round.a, a);
    if (schedule.mixing() == Mixing::two_block) {
      x += reference::product(round.a_from_b, b);
      b = reference::product(round.b_from_a, a) + reference::product(round.b, b);
    }
    p = reference::product(round.a, p);
    for (Eigen::Index i = 0; i < p.size(); ++i)
      if (p[i] > 0) estimate.row(i) = x.row(i) / p[i];
  }
};

Eigen::MatrixXd start_values(Rank n, int dim) {
  Eigen::MatrixXd start(n, dim);
  for (int c = 0; c < dim; ++c) start.col(c) = random_vector(n, static_cast<unsigned>(100 + c));
  return start;
}

std::vector<double> rank_major(const Eigen::MatrixXd& values) {
  std::vector<double> flat;
  for (Eigen::Index i = 0; i < values.rows(); ++i)
    for (Eigen::Index c = 0; c < values.cols(); ++c) flat.push_back(values(i, c));
  return flat;
}

double messages_of(const Schedule& schedule, Step step) {
  double messages = 0;
  for (const Exchange& exchange : all_exchanges(schedule, step)) {
    messages += static_cast<double>(exchange.sources.size());
    if (const auto g = static_cast<double>(exchange.group.size()); g > 1) messages += 2 * (g - 1) / g;
  }
  return messages;
}

void expect_mixes(const std::string& text, Rank n, int dim, Step first, int rounds) {
  SCOPED_TRACE(text + " n = " + std::to_string(n) + " dim = " + std::to_string(dim) + " from " +
               std::to_string(first));
  const SchedulePtr schedule = make_schedule(text, n, 21);
  const Eigen::MatrixXd start = start_values(n, dim);
  DenseMixer expected(start);
  Mixer mixer(schedule, dim);
  mixer.start(rank_major(start), first);
  for (Step t = first; t < first + rounds; ++t) {
    ASSERT_EQ(mixer.step(), t);
    mixer.advance();
    expected.advance(*schedule, t);
    ASSERT_NEAR(mixer.messages(), messages_of(*schedule, t), 1e-9) << "step " << t;
    const auto values = rank_major(schedule->mixing() == Mixing::push_sum ? expected.estimate : expected.x);
    ASSERT_EQ(mixer.values().size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(mixer.values()[i], values[i], 1e-12) << "step " << t << ", value " << i;
  }
}

class MixerTest : public testing::TestWithParam<std::string> {};

TEST_P(MixerTest, EqualsTheDenseProduct) {
  for (const int dim : {1, 3})
    for (const Step first : {0, 1, 5}) expect_mixes(GetParam(), 12, dim, first, 12);
}

INSTANTIATE_TEST_SUITE_P(Circulants, MixerTest,
                         testing::Values("ring", "one-way-ring", "exponential", "one-peer-exponential",
                                         "k-peer-exponential(k=2)", "k-peer-exponential(k=20)",
                                         "u-equistatic(m=9)", "od-equidyn", "od-equidyn(eta=0.9)"),
                         [](const auto& tested) { return test_name(tested.param); });
INSTANTIATE_TEST_SUITE_P(Matchings, MixerTest,
                         testing::Values("one-peer-ring", "random-matching", "ou-equidyn",
                                         "ou-equidyn(eta=0.3)"),
                         [](const auto& tested) { return test_name(tested.param); });
INSTANTIATE_TEST_SUITE_P(General, MixerTest,
                         testing::Values("grid", "star", "complete", "base(k=1)", "base(k=2)", "aer(local=2)",
                                         "aer(local=3)", "hierarchical(outer=ring,local=3)",
                                         "periodic(ring,h=4)", "el-oracle(k=3)", "matcha(grid)",
                                         "live(exponential,members=[1,2,5..9])",
                                         "live(complete,members=[1,2,5..9])", "one-peer-of(star)"),
                         [](const auto& tested) { return test_name(tested.param); });
INSTANTIATE_TEST_SUITE_P(PushSum, MixerTest,
                         testing::Values("fold-unfold", "star(weights=push)", "grid(weights=push)",
                                         "hierarchical(outer=fold-unfold,local=2)",
                                         "live(fold-unfold,members=[1..5])", "periodic(fold-unfold,h=5)"),
                         [](const auto& tested) { return test_name(tested.param); });
// Block b starts at zero if a run starts within a period; in some rounds rank 0 is idle.
INSTANTIATE_TEST_SUITE_P(TwoBlocks, MixerTest,
                         testing::Values("ceca", "ceca(k=2)", "ceca(k=3)", "ceca(k=11)", "ceca-1p",
                                         "hierarchical(outer=ceca,local=2)", "periodic(ceca,h=3)",
                                         "live(ceca,members=[1..7])", "live(ceca-1p,members=[2..11])",
                                         "live(ceca(k=2),members=[1,4..8])"),
                         [](const auto& tested) { return test_name(tested.param); });

// At powers no block b is sent; this shortcut must not change the result.
TEST(MixerShortcutTest, PowersNeedNoSecondBlock) {
  for (const std::string text : {"ceca", "ceca-1p"}) expect_mixes(text, 16, 2, 0, 8);
  expect_mixes("ceca(k=2)", 27, 1, 0, 6);
}

// Tiles of 1024 values, and rotations that wrap around inside one.
TEST(MixerShortcutTest, LargerThanATile) {
  for (const std::string text : {"exponential", "ring", "ceca(k=4)", "one-peer-exponential"})
    expect_mixes(text, 1500, 1, 0, 3);
  expect_mixes("exponential", 700, 3, 0, 2);
}

TEST(MixerTest, OneRankKeepsItsValue) {
  for (const std::string text :
       {"ring", "base", "ceca", "random-matching", "fold-unfold", "complete", "star(weights=push)"}) {
    Mixer mixer(make_schedule(text, 1), 2);
    mixer.start(std::vector<double>{3, -4});
    for (int t = 0; t < 5; ++t) mixer.advance();
    EXPECT_EQ(std::vector<double>(mixer.values().begin(), mixer.values().end()), (std::vector<double>{3, -4}))
        << text;
    EXPECT_EQ(mixer.messages(), 0) << text;
  }
}

TEST(MixerTest, RestartsFromTheFirstStep) {
  for (const std::string text : {"ceca", "fold-unfold", "ring", "base"}) {
    const SchedulePtr schedule = make_schedule(text, 11);
    const auto start = rank_major(start_values(11, 1));
    Mixer used(schedule);
    used.start(std::vector<double>(11, 7.0), 3);
    for (int t = 0; t < 3; ++t) used.advance();
    used.start(start);
    Mixer fresh(schedule);
    fresh.start(start);
    for (int t = 0; t < 6; ++t) {
      used.advance();
      fresh.advance();
      for (std::size_t i = 0; i < start.size(); ++i) ASSERT_EQ(used.values()[i], fresh.values()[i]) << text;
    }
  }
}

// A schedule that seems to have period h, but contains a longer one, must not be run from a cache of h
// rounds.
TEST(MixerTest, SchedulesWithoutAPeriodAreNotRepeated) {
  expect_mixes("periodic(one-peer-of(erdos-renyi),h=3)", 40, 1, 0, 9);
}

TEST(MixerTest, StepsFarAway) {
  const Step far = (Step{1} << 40) + 3;
  for (const std::string text :
       {"one-peer-exponential", "base(k=2)", "random-matching", "ceca", "periodic(ring,h=7)"})
    expect_mixes(text, 12, 1, far, 5);
}

TEST(MixerTest, DistanceAndMean) {
  const std::vector<double> values = {1, 10, 2, 20, 6, 60};
  const auto mean = mean_of(values, 2);
  ASSERT_EQ(mean.size(), 2u);
  EXPECT_DOUBLE_EQ(mean[0], 3);
  EXPECT_DOUBLE_EQ(mean[1], 30);
  EXPECT_DOUBLE_EQ(distance_to(values, mean), std::sqrt(4 + 1 + 9 + 400 + 100 + 900));
  EXPECT_DOUBLE_EQ(distance_to(std::vector<double>{1, 2, 3, 4, 5, 6, 7}, std::vector<double>{4}),
                   std::sqrt(28.0));
}

TEST(MixerTest, EqualValuesStayBitForBit) {
  for (const char* text : {"ring", "exponential", "one-peer-exponential", "random-matching", "od-equidyn"}) {
    Mixer mixer(make_schedule(text, 12, 3), 2);
    const std::vector<double> start(24, 0.1);
    mixer.start(start, 0);
    for (int t = 0; t < 40; ++t) mixer.advance();
    for (const double value : mixer.values()) ASSERT_EQ(value, 0.1) << text;
  }
}

}  // namespace
}  // namespace starling::topology
