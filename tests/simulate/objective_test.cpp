#include "starling/simulate/objective.h"

#include <cmath>
#include <gmock/gmock.h>
#include <set>
#include <thread>

#include "base/test_name.h"
#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/simulate/objective_registry.h"

namespace starling::simulate {
namespace {

using testing::HasSubstr;
using Vector = std::vector<double>;

constexpr Rank kObjectiveNodes = 5;
constexpr std::size_t kDim = 7;

ObjectivePtr make(const std::string& text, std::uint64_t seed = 3) {
  return make_objective(text, kObjectiveNodes, kDim, seed);
}

Vector somewhere(std::size_t dim, std::uint64_t seed) {
  Random random(seed, 1, 1);
  Vector x(dim);
  for (double& value : x) value = random.normal();
  return x;
}

Vector gradient_of(const Objective& objective, Rank node, Step step, const Vector& x) {
  Vector out(x.size(), 99.0);
  objective.gradient(node, step, std::span<const double>(x), std::span<double>(out));
  return out;
}

Vector mean_gradient_of(const Objective& objective, const Vector& x) {
  Vector out(x.size(), 99.0);
  objective.mean_gradient(x, out);
  return out;
}

class ObjectiveTest : public testing::TestWithParam<std::string> {};

// Uses a sixth-order central difference: truncation and rounding errors are both below the tolerance.
TEST_P(ObjectiveTest, TheMeanGradientIsThatOfTheValue) {
  const ObjectivePtr objective = make(GetParam());
  const Vector x = somewhere(objective->dim(), 1);
  const Vector gradient = mean_gradient_of(*objective, x);
  constexpr double kWidth = 2e-3;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const auto at = [&](int steps) {
      Vector moved = x;
      moved[k] += steps * kWidth;
      return objective->value(moved);
    };
    const double difference =
        (45 * (at(1) - at(-1)) - 9 * (at(2) - at(-2)) + (at(3) - at(-3))) / (60 * kWidth);
    EXPECT_NEAR(gradient[k], difference, 1e-10 * (1 + std::abs(difference))) << "coordinate " << k;
  }
}

TEST_P(ObjectiveTest, TheMeanGradientIsTheMeanOfTheNodes) {
  const ObjectivePtr objective = make(GetParam());
  const Vector x = somewhere(objective->dim(), 2);
  Vector sum(x.size(), 0.0), one(x.size());
  for (Rank node = 0; node < kObjectiveNodes; ++node) {
    objective->exact_gradient(node, x, one);
    for (std::size_t k = 0; k < x.size(); ++k) sum[k] += one[k] / kObjectiveNodes;
  }
  const Vector mean = mean_gradient_of(*objective, x);
  double squares = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    EXPECT_NEAR(mean[k], sum[k], 1e-13);
    squares += mean[k] * mean[k];
  }
  EXPECT_NEAR(objective->mean_gradient_norm(x), std::sqrt(squares), 1e-13);
}

TEST_P(ObjectiveTest, ThePureFunctionOfSeedNodeAndStep) {
  const ObjectivePtr one = make(GetParam()), same = make(GetParam()), other = make(GetParam(), 4);
  const Vector x = somewhere(one->dim(), 3);
  std::vector<Vector> expected, seen(kObjectiveNodes);
  for (Rank node = 0; node < kObjectiveNodes; ++node) expected.push_back(gradient_of(*one, node, 6, x));
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_NE(gradient_of(*other, 0, 6, x), expected[0]);
  std::vector<std::thread> threads;
  for (Rank node = kObjectiveNodes; node-- > 0;)
    threads.emplace_back([&, node] {
      gradient_of(*same, node, 9, x);
      seen[static_cast<std::size_t>(node)] = gradient_of(*same, node, 6, x);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen, expected);
}

TEST_P(ObjectiveTest, Float32IsClose) {
  const ObjectivePtr objective = make(GetParam());
  const Vector x = somewhere(objective->dim(), 4);
  const std::vector<float> narrow(x.begin(), x.end());
  const Vector wide(narrow.begin(), narrow.end());
  std::vector<float> out(x.size());
  objective->gradient(2, 5, std::span<const float>(narrow), std::span<float>(out));
  const Vector expected = gradient_of(*objective, 2, 5, wide);
  for (std::size_t k = 0; k < x.size(); ++k)
    EXPECT_NEAR(out[k], expected[k], 1e-5 * (1 + std::abs(expected[k])));
}

INSTANTIATE_TEST_SUITE_P(All, ObjectiveTest,
                         testing::Values("quadratic", "quadratic(noise=0.5)", "least-squares",
                                         "least-squares(samples=33, batch=6)", "logistic(samples=9)",
                                         "logistic(regularizer=0.3, batch=5)", "logistic(regularizer=0)",
                                         "mlp(hidden=3)", "mlp(hidden=2, classes=3, batch=4)"),
                         [](const auto& test) { return test_name(test.param); });

// Random draws change from step to step; their mean over many steps is the full gradient.
TEST(Objective, BatchesAndNoiseAreUnbiased) {
  for (const std::string name :
       {"quadratic(noise=0.5)", "least-squares(batch=10)", "logistic(batch=10)", "mlp(hidden=3, batch=8)"}) {
    const ObjectivePtr objective = make(name);
    const Vector x = somewhere(objective->dim(), 5);
    EXPECT_NE(gradient_of(*objective, 1, 0, x), gradient_of(*objective, 1, 1, x)) << name;
    constexpr int kSteps = 4000;
    Vector sum(x.size(), 0.0), squares(x.size(), 0.0), exact(x.size());
    for (Step step = 0; step < kSteps; ++step) {
      const Vector one = gradient_of(*objective, 1, step, x);
      for (std::size_t k = 0; k < x.size(); ++k) {
        sum[k] += one[k];
        squares[k] += one[k] * one[k];
      }
    }
    objective->exact_gradient(1, x, exact);
    for (std::size_t k = 0; k < x.size(); ++k) {
      const double mean = sum[k] / kSteps;
      const double error = std::sqrt((squares[k] / kSteps - mean * mean) / kSteps);
      EXPECT_NEAR(mean, exact[k], 5 * error) << name << ", coordinate " << k;
    }
  }
}

TEST(Objective, WithoutBatchesNothingChangesFromStepToStep) {
  for (const std::string name : {"quadratic", "least-squares", "logistic", "mlp"}) {
    const ObjectivePtr objective = make(name);
    const Vector x = somewhere(objective->dim(), 6);
    EXPECT_EQ(gradient_of(*objective, 1, 0, x), gradient_of(*objective, 1, 100, x)) << name;
  }
}

TEST(Objective, TheMinimumHasNoGradientAndNothingIsLower) {
  for (const std::string name :
       {"quadratic", "quadratic(condition=1000)", "least-squares", "least-squares(samples=3, batch=2)",
        "logistic", "logistic(regularizer=0)", "logistic(regularizer=0.2, heterogeneity=3)"}) {
    const ObjectivePtr objective = make(name);
    const auto where = objective->minimizer();
    ASSERT_TRUE(where) << name;
    EXPECT_LT(objective->mean_gradient_norm(*where), 1e-12) << name;
    EXPECT_EQ(objective->least_value(), objective->value(*where));
    for (const double size : {1e-3, 0.1}) {
      Vector near = *where;
      const Vector away = somewhere(near.size(), 7);
      for (std::size_t k = 0; k < near.size(); ++k) near[k] += size * away[k];
      EXPECT_GT(objective->value(near), *objective->least_value()) << name << ", " << size;
    }
  }
  EXPECT_FALSE(make("mlp")->minimizer());
  EXPECT_FALSE(make("mlp")->least_value());
}

// The solver must finish on large, badly conditioned problems.
TEST(Objective, TheSolverCopesWithSize) {
  const ObjectivePtr objective = make_objective("logistic(samples=20, regularizer=0.001)", 40, 100, 1);
  EXPECT_LT(objective->mean_gradient_norm(*objective->minimizer()), 1e-12);
}

// At x = 0 all labels are equally likely, whatever the number of samples.
TEST(Objective, LogisticLossAtZero) {
  for (const std::string samples : {"8", "9", "10", "33"})
    EXPECT_NEAR(make("logistic(samples=" + samples + ")")->value(Vector(kDim, 0.0)), std::log(2.0), 1e-15);
}

TEST(Objective, HeterogeneitySpreadsTheGradients) {
  const auto spread = [](const std::string& text) {
    const ObjectivePtr objective = make_objective(text, 20, 10, 1);
    const Vector where = *objective->minimizer();
    double squares = 0;
    for (Rank node = 0; node < 20; ++node)
      for (const double value : gradient_of(*objective, node, 0, where)) squares += value * value;
    return std::sqrt(squares);
  };
  EXPECT_LT(spread("quadratic(heterogeneity=0)"), 1e-12);
  EXPECT_GT(spread("quadratic(heterogeneity=2)"), 3 * spread("quadratic(heterogeneity=0.5)"));
  EXPECT_GT(spread("least-squares(heterogeneity=2)"), 3 * spread("least-squares(heterogeneity=0)"));
  EXPECT_GT(spread("logistic(heterogeneity=2)"), 1.5 * spread("logistic(heterogeneity=0)"));
}

TEST(Objective, StartsAreShared) {
  for (const std::string name : {"quadratic", "mlp"}) {
    const ObjectivePtr objective = make(name);
    Vector first(objective->dim(), 5.0), last(objective->dim(), 6.0);
    objective->start(0, first);
    objective->start(kObjectiveNodes - 1, last);
    EXPECT_EQ(first, last);
    EXPECT_EQ(first == Vector(objective->dim(), 0.0), name == "quadratic");
  }
}

TEST(Objective, NetworksHaveMoreParametersThanInputs) {
  EXPECT_EQ(make("mlp(hidden=3, classes=2)")->dim(), 3 * kDim + 3 + 2 * 3 + 2);
}

TEST(ObjectiveRegistry, RefusalsSayWhatIsValid) {
  const auto refused = [](const std::string& text) {
    try {
      make(text);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refused("logistik"), HasSubstr("logistic"));
  EXPECT_THAT(refused("logistic(samples=0)"), HasSubstr("samples"));
  EXPECT_THAT(refused("logistic(samples=5, batch=6)"), HasSubstr("batch"));
  EXPECT_THAT(refused("quadratic(spread=2)"), HasSubstr("spread"));
  EXPECT_THAT(refused("mlp(heterogeneity=2)"), HasSubstr("heterogeneity"));
  EXPECT_THAT(refused("[logistic]"), HasSubstr("list"));
  EXPECT_THROW(make_objective("quadratic", 0, 1, 0), InvalidArgument);
}

TEST(ObjectiveRegistry, TakesObjectivesOfTheProgram) {
  class Bowl : public Objective {
   public:
    using Objective::gradient;
    using Objective::Objective;
    void gradient(Rank, Step, std::span<const double> x, std::span<double> out) const override {
      for (std::size_t k = 0; k < dim(); ++k) out[k] = x[k] - 1;
    }
    double value(std::span<const double> x) const override { return (x[0] - 1) * (x[0] - 1) / 2; }
  };
  register_objective({"bowl", "a bowl", {}, [](const Parameters&, const ObjectiveSetting& setting) {
                        return std::make_shared<Bowl>(setting.nodes, setting.dim);
                      }});
  const ObjectivePtr bowl = make("bowl");
  EXPECT_EQ(bowl->dim(), kDim);
  EXPECT_EQ(bowl->mean_gradient_norm(Vector(kDim, 1.0)), 0);
  EXPECT_THROW(register_objective({"bowl", "again", {}, nullptr}), InvalidArgument);
}

}  // namespace
}  // namespace starling::simulate
