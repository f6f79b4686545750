#include "starling/simulate/consensus.h"

#include <cctype>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "base/test_name.h"
#include "starling/base/error.h"
#include "starling/simulate/circulant_decay.h"
#include "starling/topology/mixer.h"
#include "starling/topology/registry.h"

namespace starling::simulate {
namespace {

using Outcome = ConsensusResult::Outcome;

ConsensusResult run(const std::string& text, Rank n, ConsensusOptions options = {}) {
  return run_consensus(make_schedule(text, n, options.seed), options);
}

ConsensusOptions with_seed(std::uint64_t seed) {
  ConsensusOptions options;
  options.seed = seed;
  return options;
}

struct Figure {
  std::string text;
  Step least;
  Step most;
};

// Checks the specification's table from one random start: each value must be in the range seen over many
// starts.
class FigureTest : public testing::TestWithParam<Figure> {};

TEST_P(FigureTest, StepsAt4900) {
  for (const std::uint64_t seed : {0, 1}) {
    const ConsensusResult result = run(GetParam().text, 4900, with_seed(seed));
    EXPECT_EQ(result.outcome, Outcome::reached);
    EXPECT_EQ(result.steps_run, result.steps);
    EXPECT_GE(result.steps, GetParam().least) << "seed " << seed;
    EXPECT_LE(result.steps, GetParam().most) << "seed " << seed;
    EXPECT_LE(result.error, 1e-10);
    if (GetParam().least == GetParam().most) {
      EXPECT_LT(result.error, 1e-14);  // exactly averaged, not just fast
    }
  }
}

std::string figure_name(const testing::TestParamInfo<Figure>& tested) {
  return test_name(tested.param.text);
}

INSTANTIATE_TEST_SUITE_P(Exact, FigureTest,
                         testing::Values(Figure{"ceca-1p", 13, 13}, Figure{"ceca", 13, 13},
                                         Figure{"ceca(k=2)", 8, 8}, Figure{"ceca(k=3)", 7, 7},
                                         Figure{"ceca(k=4)", 6, 6}, Figure{"base(k=1)", 23, 23},
                                         Figure{"base(k=2)", 15, 15}, Figure{"base(k=4)", 8, 8}),
                         figure_name);
INSTANTIATE_TEST_SUITE_P(Asymptotic, FigureTest,
                         testing::Values(Figure{"u-equistatic(m=13)", 37, 75},
                                         Figure{"d-equistatic(m=13)", 50, 77}, Figure{"od-equidyn", 52, 62},
                                         Figure{"random-matching", 66, 67}, Figure{"ou-equidyn", 76, 81},
                                         Figure{"exponential", 93, 128},
                                         Figure{"one-peer-exponential", 130, 143},
                                         Figure{"torus", 11'400, 12'400}, Figure{"grid", 43'700, 48'900}),
                         figure_name);

TEST(ConsensusTest, RingOf4900IsComputedFromItsSpectrum) {
  const ConsensusResult result = run("ring", 4900);
  EXPECT_EQ(result.outcome, Outcome::computed);
  EXPECT_GE(result.steps, 32'900'000);
  EXPECT_LE(result.steps, 36'200'000);
  EXPECT_EQ(result.steps_run, 0);
  EXPECT_LE(result.error, 1e-10);
  EXPECT_GT(result.error, 0.99e-10);
  EXPECT_DOUBLE_EQ(result.messages, 9800.0 * static_cast<double>(result.steps));
}

std::vector<double> start_of(Rank n, int dim) {
  std::vector<double> values;
  for (int i = 0; i < n * dim; ++i) values.push_back(std::sin(1.0 + 0.7 * i * i));
  return values;
}

// Computes the decay from eigenvalues and by running the rounds.
TEST(CirculantDecayTest, AgreesWithRunning) {
  for (const std::string text :
       {"ring", "exponential", "one-way-ring", "u-equistatic", "ring(weights=laplacian)"})
    for (const int dim : {1, 2}) {
      const SchedulePtr schedule = make_schedule(text, 40);  // one eigenvalue of one-way-ring is exactly zero
      const auto start = start_of(40, dim);
      const auto mean = mean_of(start, dim);
      const double scale = distance_to(start, mean);
      const CirculantDecay decay(dynamic_cast<const Circulant&>(*schedule), start, dim);
      Mixer mixer(schedule, dim);
      mixer.start(start);
      EXPECT_EQ(decay.error(0), 1);
      Step reached = 0;
      for (Step t = 1; t <= 5000; ++t) {
        mixer.advance();
        const double error = distance_to(mixer.values(), mean) / scale;
        ASSERT_NEAR(decay.error(t), error, 1e-12) << text << " step " << t;
        if (reached == 0 && error <= 1e-6) reached = t;
      }
      ASSERT_GT(reached, 0) << text;
      EXPECT_EQ(decay.steps_to(1e-6), reached) << text;
    }
}

TEST(ConsensusTest, ComputedEqualsRun) {
  for (const std::string text : {"ring", "one-way-ring"}) {
    ConsensusOptions options;
    options.tolerance = 1e-6;
    const ConsensusResult reached = run(text, 40, options);
    options.max_steps = 50;
    const ConsensusResult computed = run(text, 40, options);
    EXPECT_EQ(reached.outcome, Outcome::reached);
    EXPECT_EQ(computed.outcome, Outcome::computed);
    EXPECT_EQ(computed.steps, reached.steps) << text;
    EXPECT_NEAR(computed.error, reached.error, 1e-12);
    EXPECT_DOUBLE_EQ(computed.messages, reached.messages);
    for (std::size_t i = 0; i < 20; ++i)
      EXPECT_NEAR(computed.curve[i].error, reached.curve[i].error, 1e-12) << text << " point " << i;
  }
}

TEST(ConsensusTest, EstimatesWhereOnlyRhoIsKnown) {
  ConsensusOptions options;
  options.max_steps = 10;
  const ConsensusResult result = run("chain", 100, options);
  EXPECT_EQ(result.outcome, Outcome::estimated);
  const double rho = make_schedule("chain", 100)->known_rho().value();
  EXPECT_EQ(result.steps, static_cast<Step>(std::ceil(std::log(1e-10) / std::log(rho))));
  // For a symmetric matrix the estimate is an upper bound, and not a loose one.
  const Step true_steps = run("chain", 100).steps;
  EXPECT_GE(result.steps, true_steps);
  EXPECT_LT(result.steps, true_steps * 5 / 4);
}

TEST(ConsensusTest, StopsWhereNothingIsKnown) {
  ConsensusOptions options;
  options.max_steps = 10;
  for (const std::string text : {"grid", "od-equidyn", "one-peer-ring"}) {
    const ConsensusResult result = run(text, 100, options);
    EXPECT_EQ(result.outcome, Outcome::stopped) << text;
    EXPECT_EQ(result.steps, 10) << text;
    EXPECT_GT(result.error, 1e-10) << text;
    EXPECT_LT(result.error, 1) << text;
  }
  // No rank receives from rank 9, which prevents consensus.
  options.max_steps = 500;
  EXPECT_EQ(run("live(complete,members=[0..8])", 10, options).outcome, Outcome::stopped);
}

TEST(ConsensusTest, StopsWhenProgressSaysSo) {
  ConsensusOptions options;
  options.max_steps = 1'000'000'000;  // more than the ring needs, so it would be run to the end
  Step last = 0;
  options.progress = [&](Step step, double error) {
    last = step;
    EXPECT_LT(error, 1);
    return false;
  };
  const ConsensusResult result = run("ring", 4900, options);
  EXPECT_EQ(result.outcome, Outcome::stopped);
  EXPECT_EQ(result.steps, last);
  EXPECT_GT(last, 0);
}

void expect_curve(const ConsensusResult& result) {
  ASSERT_FALSE(result.curve.empty());
  EXPECT_EQ(result.curve.front().step, 0);
  EXPECT_EQ(result.curve.front().error, 1);
  EXPECT_EQ(result.curve.front().messages, 0);
  EXPECT_EQ(result.curve.back().step, result.steps);
  EXPECT_EQ(result.curve.back().error, result.error);
  EXPECT_EQ(result.curve.back().messages, result.messages);
  for (std::size_t i = 1; i < result.curve.size(); ++i) {
    ASSERT_GT(result.curve[i].step, result.curve[i - 1].step) << i;
    ASSERT_GE(result.curve[i].messages, result.curve[i - 1].messages) << i;
    ASSERT_TRUE(std::isfinite(result.curve[i].error));
    // Every step at first, then fewer.
    ASSERT_TRUE(result.curve[i].step > 50 || result.curve[i].step == static_cast<Step>(i)) << i;
  }
}

TEST(ConsensusTest, CurvesAreOrderedAndShort) {
  ConsensusOptions few;
  few.max_steps = 20;
  for (const ConsensusResult& result :
       {run("torus", 900), run("base", 100), run("random-matching", 50), run("fold-unfold", 30),
        run("ring", 100), run("ring", 4900), run("chain", 100, few), run("one-way-ring", 40, few),
        run("grid", 100, few)}) {
    SCOPED_TRACE(result.topology + " on " + std::to_string(result.n));
    expect_curve(result);
    EXPECT_LT(result.curve.size(), 1000u);
  }
  const ConsensusResult ring = run("ring", 4900);
  for (std::size_t i = 1; i < ring.curve.size(); ++i) ASSERT_LE(ring.curve[i].error, ring.curve[i - 1].error);
}

TEST(ConsensusTest, SameSeedSameResult) {
  for (const std::string text : {"ring", "od-equidyn", "ceca", "fold-unfold"}) {
    const ConsensusResult first = run(text, 30, with_seed(5));
    const ConsensusResult again = run(text, 30, with_seed(5));
    const ConsensusResult other = run(text, 30, with_seed(6));
    ASSERT_EQ(first.curve.size(), again.curve.size()) << text;
    for (std::size_t i = 0; i < first.curve.size(); ++i)
      ASSERT_EQ(first.curve[i].error, again.curve[i].error) << text;
    EXPECT_NE(first.curve[1].error, other.curve[1].error) << text;
  }
}

TEST(ConsensusTest, ManyValuesPerRank) {
  ConsensusOptions options;
  options.dim = 5;
  for (const auto& [text, steps] :
       {std::pair("base", 8), std::pair("ceca", 5), std::pair("fold-unfold", 6)}) {
    const ConsensusResult result = run(text, 20, options);
    EXPECT_EQ(result.outcome, Outcome::reached) << text;
    EXPECT_EQ(result.steps, static_cast<Step>(make_schedule(text, 20)->period())) << text;
    EXPECT_LE(result.steps, steps) << text;
  }
  // More values include slower ones, so the number of steps is closer to what rho predicts.
  options.dim = 64;
  const double rho = make_schedule("ring", 20)->known_rho().value();
  const double slowest = std::log(1e-10) / std::log(rho);
  const ConsensusResult ring = run("ring", 20, options);
  EXPECT_LE(static_cast<double>(ring.steps), slowest + 1);
  EXPECT_GT(static_cast<double>(ring.steps), 0.85 * slowest);
}

TEST(ConsensusTest, CountsMessages) {
  EXPECT_DOUBLE_EQ(run("complete", 10).messages, 18);
  EXPECT_EQ(run("complete", 10).steps, 1);
  const ConsensusResult ring = run("ring", 10);
  EXPECT_DOUBLE_EQ(ring.messages, 20.0 * static_cast<double>(ring.steps));
  EXPECT_DOUBLE_EQ(run("ceca", 10).messages, 40);
  const ConsensusResult fold = run("fold-unfold", 6);  // 2 + 4 + 4 + 2
  EXPECT_DOUBLE_EQ(fold.messages, 12);
}

TEST(ConsensusTest, OneRankAgreesWithItself) {
  for (const std::string text : {"ring", "ceca", "fold-unfold", "random-matching"}) {
    const ConsensusResult result = run(text, 1);
    EXPECT_EQ(result.outcome, Outcome::reached) << text;
    EXPECT_EQ(result.steps, 0) << text;
    EXPECT_EQ(result.error, 0) << text;
    EXPECT_EQ(result.curve.size(), 1u) << text;
  }
}

TEST(ConsensusTest, OptionsOutOfRangeAreRefused) {
  const auto message = [](auto&& change) -> std::string {
    ConsensusOptions options;
    change(options);
    try {
      run("ring", 4, options);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message([](ConsensusOptions& o) { o.tolerance = 0; }), "tolerance 0 is not between 0 and 1");
  EXPECT_EQ(message([](ConsensusOptions& o) { o.tolerance = 1; }), "tolerance 1 is not between 0 and 1");
  EXPECT_EQ(message([](ConsensusOptions& o) { o.tolerance = -0.5; }),
            "tolerance -0.5 is not between 0 and 1");
  EXPECT_EQ(message([](ConsensusOptions& o) { o.tolerance = std::numeric_limits<double>::quiet_NaN(); }),
            "tolerance nan is not between 0 and 1");
  EXPECT_EQ(message([](ConsensusOptions& o) { o.dim = 0; }), "dim 0 is not at least 1");
  EXPECT_EQ(message([](ConsensusOptions& o) { o.max_steps = 0; }), "max steps 0 is not at least 1");
}

TEST(ConsensusTest, OutcomesHaveNames) {
  EXPECT_STREQ(to_string(Outcome::reached), "reached");
  EXPECT_STREQ(to_string(Outcome::computed), "computed");
  EXPECT_STREQ(to_string(Outcome::estimated), "estimated");
  EXPECT_STREQ(to_string(Outcome::stopped), "stopped");
}

}  // namespace
}  // namespace starling::simulate
