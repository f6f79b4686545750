#include <cmath>
#include <gtest/gtest.h>

#include "base/test_name.h"
#include "method/same_models.h"
#include "simulate/simulated.h"

// Nodes of different speeds that do not wait for each other.

namespace starling::simulate {
namespace {

constexpr Rank kNodes = 5;

struct Uneven {
  std::string method;
  std::string topology = "ring";
};

void PrintTo(const Uneven& one, std::ostream* out) {
  *out << one.method << " on " << one.topology;
}

/// The nodes' models when the slowest has made a third of its steps and no node all of them; a step of node i
/// takes 1 + i / 3 milliseconds.
std::vector<std::vector<double>> models_of(const Uneven& one, const Problem& problem, double lr, Step steps) {
  std::vector<std::vector<double>> models;
  TrainingOptions options;
  options.method = one.method;
  options.topology = one.topology;
  options.lr = lr;
  options.steps = steps;
  for (Rank node = 0; node < problem.n; ++node)
    options.time.compute_of.push_back(1e-3 * (1 + static_cast<double>(node) / 3));
  options.observe = [&](Step step, const SimulatedModels& all) {
    if (step != steps / 3) return;
    for (Rank node = 0; node < all.nodes(); ++node) models.emplace_back(all(node).begin(), all(node).end());
  };
  run_training(ProblemObjective(problem), options);
  return models;
}

double farthest(const std::vector<std::vector<double>>& models, const Vector& from) {
  double largest = 0;
  for (const auto& model : models)
    for (std::size_t k = 0; k < from.size(); ++k) {
      const double off = std::abs(model[k] - static_cast<double>(from[k]));
      largest = off < largest ? largest : off;  // keeps NaN
    }
  return largest;
}

class AsynchronousTest : public testing::TestWithParam<Uneven> {};

// Covers averages of pairs, the mean of all ranks, and a ratio of two sums whose parts move as a whole.
TEST_P(AsynchronousTest, WithoutStepsAllReachTheMeanOfTheStarts) {
  const Problem problem{.n = kNodes};
  Vector mean(problem.count);
  for (Rank node = 0; node < kNodes; ++node)
    for (std::size_t k = 0; k < problem.count; ++k)
      mean[k] += static_cast<Number>(problem.start(node, k)) / kNodes;
  EXPECT_LT(farthest(models_of(GetParam(), problem, 0, 1800), mean), 1e-9);
}

TEST_P(AsynchronousTest, EndsNearTheOptimum) {
  const Problem problem{.n = kNodes, .equal_starts = true};
  EXPECT_LT(farthest(models_of(GetParam(), problem, 0.02, 1800), problem.optimum()), 0.5);
}

INSTANTIATE_TEST_SUITE_P(All, AsynchronousTest,
                         testing::Values(Uneven{"async-push-sum"},
                                         Uneven{"async-push-sum", "star(weights=push)"},
                                         Uneven{"async-average(interval=0.002)"}, Uneven{"ad-psgd"},
                                         Uneven{"ad-psgd", "star"}),
                         [](const testing::TestParamInfo<Uneven>& test) {
                           return test_name(test.param.method + "_" + test.param.topology);
                         });

struct Even {
  std::string method;
  std::string topology;
};

// Nodes of equal speed run in a fixed order, for which the methods' equations are known.
TEST(LockStepTest, AsynchronousMethodsFollowTheirEquations) {
  const Even all[] = {{"win-put", "ring"},
                      {"win-put", "star"},
                      {"win-put", "exponential"},
                      {"async-push-sum", "ring"},
                      {"async-push-sum", "star(weights=push)"},
                      {"async-push-sum", "chain(weights=push)"},
                      {"async-average(interval=0)", "ring"}};
  for (const Even& one : all)
    for (const Rank n : {1, 2, 5}) {
      MethodRun run;
      run.problem = {.n = n};
      run.options = {
          .method = one.method, .topology = one.topology, .optimizer = "momentum(lr=0.05,momentum=0.5)"};
      run.steps = 60;
      const LocalRule rule{.kind = "sgd", .lr = 0.05, .momentum = 0.5};
      const auto dense = make_dense({one.method, one.topology}, run.problem, rule);
      EXPECT_TRUE(same_models(simulated<double>(run), *dense, 1e-10L))
          << one.method << " on " << one.topology;
    }
}

// A neighbor's block counts each time it is used, so the mean may move; but equal starts stay equal.
TEST(WinPutTest, AgreesAndKeepsEqualStarts) {
  for (const bool equal : {false, true}) {
    const Problem problem{.n = kNodes, .equal_starts = equal};
    const auto models = models_of({"win-put"}, problem, 0, 1800);
    const Vector first(models[0].begin(), models[0].end());
    EXPECT_LT(farthest(models, equal ? problem.start_of<Number>(0) : first), 1e-9);
  }
  const Problem problem{.n = kNodes, .equal_starts = true};
  EXPECT_LT(farthest(models_of({"win-put"}, problem, 0.02, 1800), problem.optimum()), 0.5);
}

}  // namespace
}  // namespace starling::simulate
