#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_name.h"
#include "starling/base/error.h"
#include "starling/simulate/objective_registry.h"
#include "starling/simulate/training.h"

// Tests methods when messages between neighbors are lost.

namespace starling::simulate {
namespace {

struct Lossy {
  std::string method;
  std::string topology;
};

TrainingPoint end_of(const Lossy& run, const std::string& problem, double drop) {
  const ObjectivePtr objective = make_objective(problem, 16, 4, 1);
  TrainingOptions options;
  options.method = run.method;
  options.topology = run.topology;
  options.lr = 0.05;
  options.steps = 2500;
  options.drop = drop;
  options.seed = 3;
  options.threads = 1;
  const TrainingResult result = run_training(*objective, options);
  EXPECT_FALSE(result.diverged) << run.method;
  return result.curve.back();
}

class ExactMethodsTest : public testing::TestWithParam<Lossy> {};

// Corrections still sum to zero and trackers to the sum of gradients, so the only fixed point is the common
// optimum.
TEST_P(ExactMethodsTest, StayExactWhenMessagesAreLost) {
  for (const double drop : {0.01, 0.1}) {
    const double plain = end_of({"dsgd-atc", GetParam().topology}, "quadratic", drop).distance;
    EXPECT_LT(end_of(GetParam(), "quadratic", drop).distance, 1e-4 * plain) << drop;
  }
}

// With noisy gradients, they stay as near to the optimum as DSGD without losses.
TEST_P(ExactMethodsTest, StayNearWithNoisyGradients) {
  const std::string problem = "quadratic(noise=1)";
  const double plain = end_of({"dsgd-atc", GetParam().topology}, problem, 0).distance;
  for (const double drop : {0.01, 0.1})
    EXPECT_LT(end_of(GetParam(), problem, drop).distance, 3 * plain) << drop;
}

INSTANTIATE_TEST_SUITE_P(
    All, ExactMethodsTest,
    testing::Values(Lossy{"gradient-tracking", "ring"}, Lossy{"gradient-tracking", "exponential"},
                    Lossy{"gradient-tracking", "one-peer-exponential"}, Lossy{"diging", "ring"},
                    Lossy{"push-diging", "exponential"}, Lossy{"push-diging", "ring(weights=push)"},
                    Lossy{"extra", "ring"}, Lossy{"exact-diffusion", "torus"}, Lossy{"d2", "ring"},
                    Lossy{"proxskip(p=0.5)", "ring"}),
    [](const auto& test) { return test_name(test.param.method + "_" + test.param.topology); });

// Without returning lost shares, the mean would shrink or grow.
TEST(MessageLossTest, PushSumKeepsTheMean) {
  const ObjectivePtr objective = make_objective("quadratic", 16, 4, 1);
  TrainingOptions options;
  options.method = "push-sum";
  options.lr = 1e-9;
  options.steps = 300;
  options.drop = 0.2;
  const auto mean_at = [&](Step steps) {
    options.steps = steps;
    return run_training(*objective, options).mean_model;
  };
  const auto first = mean_at(0);
  const auto last = mean_at(300);
  for (std::size_t k = 0; k < first.size(); ++k) EXPECT_NEAR(first[k], last[k], 1e-5);
}

TEST(MessageLossTest, MethodsThatNeedEveryMessageRefuse) {
  const ObjectivePtr objective = make_objective("quadratic", 4, 4, 1);
  for (const Lossy& run : {Lossy{"low-precision-ring", "ring"}, Lossy{"choco(codec=fp16)", "ring"},
                           Lossy{"relay-sgd(missing=reference)", "chain"}}) {
    TrainingOptions options;
    options.method = run.method;
    options.topology = run.topology;
    options.steps = 1;
    EXPECT_NO_THROW(run_training(*objective, options));
    options.drop = 0.01;
    EXPECT_THAT([&] { run_training(*objective, options); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("while messages get lost: ")));
  }
}

TEST(DivergenceTest, EndsARunAndNamesStepAndNode) {
  const ObjectivePtr objective = make_objective("quadratic", 4, 4, 1);
  TrainingOptions options;
  options.topology = "ring";
  options.lr = 1e3;
  options.steps = 5000;
  const TrainingResult result = run_training(*objective, options);
  ASSERT_TRUE(result.diverged);
  EXPECT_LT(result.diverged->step, 1000);
  EXPECT_EQ(result.diverged->step, result.curve.back().step);
  EXPECT_THAT(result.diverged->text(), testing::ContainsRegex("node [0-3]'s model was not finite at step "));
  options.lr = 0.01;
  EXPECT_FALSE(run_training(*objective, options).diverged);
}

}  // namespace
}  // namespace starling::simulate
