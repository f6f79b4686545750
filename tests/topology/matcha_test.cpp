#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/test_name.h"
#include "starling/topology/registry.h"
#include "topology/dense_reference.h"
#include "topology/random_checks.h"
#include "topology/schedule_checks.h"

namespace starling::topology {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

MatrixXd edges_of(const std::string& graph, int n) {
  MatrixXd edges = (reference::dense_schedule(graph, n)(0).a.array() != 0).cast<double>();
  edges.diagonal().setZero();
  return edges;
}

/// The observed properties of a MATCHA schedule: its matchings (as Laplacians), how often each is used, and
/// the step a.
struct Observed {
  std::vector<MatrixXd> laplacians;
  VectorXd p;
  double a = 0;
};

/// Edges that always occur together belong to one matching.
Observed observe(const Schedule& schedule, const MatrixXd& edges, int steps) {
  const Rank n = schedule.size();
  Observed observed;
  std::map<std::pair<Rank, Rank>, std::vector<bool>> active;
  for (Rank i = 0; i < n; ++i) {
    for (Rank j = 0; j < i; ++j) {
      if (edges(i, j) != 0) active[{i, j}].resize(static_cast<std::size_t>(steps), false);
    }
  }
  for (Step step = 0; step < steps; ++step) {
    for (Rank rank = 0; rank < n; ++rank) {
      for (const Source& source : schedule.exchange(step, rank).sources) {
        EXPECT_NE(edges(rank, source.rank), 0) << "an edge that the graph does not have";
        if (observed.a == 0) observed.a = source.weight;
        EXPECT_NEAR(source.weight, observed.a, 1e-12);
        if (source.rank < rank) active[{rank, source.rank}][static_cast<std::size_t>(step)] = true;
      }
    }
  }
  std::map<std::vector<bool>, MatrixXd> classes;
  for (const auto& [edge, pattern] : active) {
    MatrixXd& laplacian = classes.try_emplace(pattern, MatrixXd::Zero(n, n)).first->second;
    const auto [i, j] = edge;
    laplacian(i, i) += 1;
    laplacian(j, j) += 1;
    laplacian(i, j) = laplacian(j, i) = -1;
  }
  observed.p.resize(static_cast<Eigen::Index>(classes.size()));
  for (const auto& [pattern, laplacian] : classes) {
    observed.p(static_cast<Eigen::Index>(observed.laplacians.size())) =
        static_cast<double>(std::count(pattern.begin(), pattern.end(), true)) / steps;
    observed.laplacians.push_back(laplacian);
  }
  return observed;
}

MatrixXd weighted_sum(const std::vector<MatrixXd>& laplacians, const VectorXd& p) {
  MatrixXd sum = MatrixXd::Zero(laplacians[0].rows(), laplacians[0].cols());
  for (std::size_t j = 0; j < laplacians.size(); ++j) sum += p(static_cast<Eigen::Index>(j)) * laplacians[j];
  return sum;
}

double lambda2(const std::vector<MatrixXd>& laplacians, const VectorXd& p) {
  return reference::eigenvalues(weighted_sum(laplacians, p))(1);
}

/// The greatest lambda_2 by random search: the function is concave, so there are no other local optima.
double best_lambda2(const std::vector<MatrixXd>& laplacians, double budget) {
  const auto count = static_cast<Eigen::Index>(laplacians.size());
  const double total = budget * static_cast<double>(count);
  VectorXd p = VectorXd::Constant(count, budget);
  double best = lambda2(laplacians, p);
  std::mt19937 generator(3);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 4000; ++trial) {
    const double size = 0.3 * std::pow(0.998, trial);
    VectorXd next = p;
    for (double& value : next) value = std::clamp(value + size * normal(generator), 0.0, 1.0);
    if (next.sum() > total) next *= total / next.sum();
    const double value = lambda2(laplacians, next);
    if (value <= best) continue;
    best = value;
    p = next;
  }
  return best;
}

/// ||E W^2 - J|| for the step a.
double mean_square(const std::vector<MatrixXd>& laplacians, const VectorXd& p, double a) {
  const Eigen::Index n = laplacians[0].rows();
  const MatrixXd sum = weighted_sum(laplacians, p);
  const MatrixXd variance = weighted_sum(laplacians, p.array() * (1 - p.array()));
  MatrixXd mean =
      MatrixXd::Identity(n, n) - 2 * a * sum + a * a * (reference::product(sum, sum) + 2 * variance);
  mean.array() -= 1.0 / static_cast<double>(n);
  return reference::eigenvalues(mean).cwiseAbs().maxCoeff();
}

double best_step(const std::vector<MatrixXd>& laplacians, const VectorXd& p) {
  double low = 0;
  double high = 4;
  for (int i = 0; i < 200; ++i) {
    const double left = low + (high - low) / 3;
    const double right = high - (high - low) / 3;
    if (mean_square(laplacians, p, left) < mean_square(laplacians, p, right)) {
      high = right;
    } else {
      low = left;
    }
  }
  return low;
}

struct MatchaCase {
  std::string graph;
  int n;
  double budget;
};

void PrintTo(const MatchaCase& matcha, std::ostream* out) {
  *out << matcha.graph << " " << matcha.n;
}

class MatchaTest : public testing::TestWithParam<MatchaCase> {};

TEST_P(MatchaTest, IsAsStated) {
  const auto& [graph, n, budget] = GetParam();
  const int steps = 40000;
  const SchedulePtr schedule = make_schedule(fmt::format("matcha(graph={},budget={})", graph, budget), n, 6);
  const MatrixXd edges = edges_of(graph, n);
  const Observed observed = observe(*schedule, edges, steps);
  const auto matchings = static_cast<double>(observed.laplacians.size());
  for (std::size_t j = 0; j < observed.laplacians.size(); ++j) {
    const double p = observed.p(static_cast<Eigen::Index>(j));
    if (p == 0 || p == 1) continue;  // several such matchings would look like one
    EXPECT_LE(observed.laplacians[j].diagonal().maxCoeff(), 1) << "not a matching";
  }
  EXPECT_LE(matchings, edges.rowwise().sum().maxCoeff() + 1);
  const double slack = 4 * std::sqrt(matchings / 4 / steps);
  EXPECT_LE(observed.p.sum(), budget * matchings + slack);
  EXPECT_GT(lambda2(observed.laplacians, observed.p), best_lambda2(observed.laplacians, budget) - 2 * slack);
  // The frequencies p are known within the slack only; MatchaKnownTest has exact ones.
  EXPECT_NEAR(observed.a, best_step(observed.laplacians, observed.p), 3 * slack);
  const double best =
      mean_square(observed.laplacians, observed.p, best_step(observed.laplacians, observed.p));
  EXPECT_NEAR(mean_square(observed.laplacians, observed.p, observed.a), best, slack);
  EXPECT_NEAR(schedule->known_mean_square_rho().value_or(std::sqrt(best)), std::sqrt(best), slack);

  const MatrixXd sum = weighted_sum(observed.laplacians, observed.p);
  const MatrixXd variance = weighted_sum(observed.laplacians, observed.p.array() * (1 - observed.p.array()));
  VectorXd x = random_vector(n, 2);
  x.array() -= x.mean();
  const double a = observed.a;
  const VectorXd change = reference::product(sum, x);
  const double expected =
      (x.squaredNorm() - 2 * a * x.dot(change) +
       a * a * (change.squaredNorm() + 2 * x.dot(VectorXd(reference::product(variance, x))))) /
      x.squaredNorm();
  EXPECT_LT(contraction_sigmas(*schedule, x, steps, expected), 4);
}

INSTANTIATE_TEST_SUITE_P(Graphs, MatchaTest,
                         testing::Values(MatchaCase{"chain", 3, 0.5}, MatchaCase{"chain", 6, 0.4},
                                         MatchaCase{"ring", 8, 0.5}, MatchaCase{"ring", 7, 0.3},
                                         MatchaCase{"star", 5, 0.5}, MatchaCase{"grid", 6, 0.4},
                                         MatchaCase{"grid", 12, 0.6}, MatchaCase{"complete", 5, 0.5},
                                         MatchaCase{"hypercube", 8, 0.5}, MatchaCase{"binary-tree", 9, 0.7}),
                         [](const auto& tested) {
                           return test_name(fmt::format("{} {}", tested.param.graph, tested.param.n));
                         });

TEST(MatchaKnownTest, SymmetricGraphsUseTheirMatchingsEquallyOften) {
  for (const MatchaCase& known :
       {MatchaCase{"chain", 3, 0.5}, MatchaCase{"star", 5, 0.3}, MatchaCase{"star", 4, 0.8}}) {
    const SchedulePtr schedule =
        make_schedule(fmt::format("matcha(graph={},budget={})", known.graph, known.budget), known.n, 1);
    const int steps = 20000;
    const Observed observed = observe(*schedule, edges_of(known.graph, known.n), steps);
    ASSERT_EQ(static_cast<int>(observed.laplacians.size()), known.n - 1) << known.graph;
    const double sigma = std::sqrt(known.budget * (1 - known.budget) / steps);
    for (const double p : observed.p) EXPECT_LT(std::abs(p - known.budget), 4 * sigma) << known.graph;
    const VectorXd exact = VectorXd::Constant(known.n - 1, known.budget);
    EXPECT_NEAR(observed.a, best_step(observed.laplacians, exact), 1e-3) << known.graph;
    const MatrixXd used = weighted_sum(observed.laplacians, exact);
    EXPECT_GT(reference::eigenvalues(used)(1), 0);
  }
}

TEST(MatchaKnownTest, FullBudgetIsTheBestLaplacian) {
  for (const auto& [graph, n] : {std::pair("ring", 8), std::pair("grid", 12), std::pair("star", 6)}) {
    const SchedulePtr schedule = make_schedule(fmt::format("matcha(graph={},budget=1)", graph), n, 1);
    const MatrixXd expected = reference::weigh(edges_of(graph, n), "laplacian");
    for (Step step = 0; step < 5; ++step) {
      EXPECT_EQ(difference(dense_round(*schedule, step), expected, 1e-4), "") << graph << " step " << step;
    }
  }
}

}  // namespace
}  // namespace starling::topology
