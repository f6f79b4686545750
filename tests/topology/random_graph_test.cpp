#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "starling/topology/registry.h"
#include "topology/dense_parts.h"
#include "topology/random_checks.h"
#include "topology/schedule_checks.h"

namespace starling::topology {
namespace {

using Eigen::MatrixXd;

/// log2 of the common hop of all ranks in a step.
int hop_log(const Schedule& schedule, Step step) {
  const Rank hop = schedule.exchange(step, 0).sources.at(0).rank;
  int log = 0;
  while ((1 << log) < hop) ++log;
  EXPECT_EQ(1 << log, hop);
  return log;
}

TEST(OnePeerExponentialTest, PermutedOrderUsesEachHopOncePerPeriod) {
  for (const int n : {2, 5, 8, 33, 64}) {
    const SchedulePtr schedule = make_schedule("one-peer-exponential(order=permuted)", n, 3);
    const Step tau = schedule->period();
    for (Step period = 0; period < 20; ++period) {
      std::set<int> hops;
      for (Step step = period * tau; step < (period + 1) * tau; ++step) {
        const int hop = hop_log(*schedule, step);
        hops.insert(hop);
        MatrixXd expected = 0.5 * MatrixXd::Identity(n, n);
        for (int i = 0; i < n; ++i) expected(i, (i + (1 << hop)) % n) += 0.5;
        ASSERT_EQ(difference(dense_round(*schedule, step), expected, 0), "") << "n=" << n << " step=" << step;
      }
      ASSERT_EQ(static_cast<Step>(hops.size()), tau) << "n=" << n << " period " << period;
    }
  }
}

TEST(OnePeerExponentialTest, PermutedOrdersAreUniform) {
  const SchedulePtr schedule = make_schedule("one-peer-exponential(order=permuted)", 16, 3);
  std::map<std::vector<int>, int> seen;
  for (Step period = 0; period < 24 * 100; ++period) {
    std::vector<int> order;
    for (Step step = 4 * period; step < 4 * period + 4; ++step) order.push_back(hop_log(*schedule, step));
    ++seen[order];
  }
  std::vector<int> counts;
  for (const auto& [order, count] : seen) counts.push_back(count);
  EXPECT_EQ(counts.size(), 24U);
  EXPECT_LT(chi_square_sigmas(counts), 4);
}

TEST(OnePeerExponentialTest, RandomHopsAreUniformAndIndependent) {
  for (const int n : {8, 19, 64}) {
    const SchedulePtr schedule = make_schedule("one-peer-exponential(order=random)", n, 3);
    const auto tau = static_cast<std::size_t>(std::ceil(std::log2(n) - 1e-9));
    std::vector<int> pairs(tau * tau);
    for (Step step = 0; step < 10000; step += 2) {
      ++pairs[static_cast<std::size_t>(hop_log(*schedule, step)) * tau +
              static_cast<std::size_t>(hop_log(*schedule, step + 1))];
    }
    EXPECT_LT(chi_square_sigmas(pairs), 4) << "n=" << n;
    EXPECT_EQ(schedule->period(), 0);
  }
}

TEST(OnePeerExponentialTest, RandomHopContractsAsStated) {
  for (const int tau : {2, 3, 5}) {
    const int n = 1 << tau;
    const SchedulePtr schedule = make_schedule("one-peer-exponential(order=random)", n, 10);
    Eigen::VectorXd worst(n);
    for (int i = 0; i < n; ++i) worst(i) = i % 2 == 0 ? 1 : -1;
    EXPECT_LT(contraction_sigmas(*schedule, worst, 5000, 1 - 1.0 / tau), 4) << "n=" << n;
    MatrixXd mean = MatrixXd::Zero(n, n);
    for (int p = 0; p < tau; ++p) {
      MatrixXd round = 0.5 * MatrixXd::Identity(n, n);
      for (int i = 0; i < n; ++i) round(i, (i + (1 << p)) % n) += 0.5;
      mean += reference::gram(round) / tau;
    }
    mean.array() -= 1.0 / n;
    const double squared = reference::eigenvalues(mean).maxCoeff();
    EXPECT_NEAR(squared, 1 - 1.0 / tau, 1e-12);
    if (schedule->known_mean_square_rho()) {
      EXPECT_NEAR(*schedule->known_mean_square_rho(), std::sqrt(squared), 1e-12);
    }
  }
}

MatrixXd edges_of(const Schedule& schedule) {
  MatrixXd edges = (dense_round(schedule, 0).array() != 0).cast<double>();
  edges.diagonal().setZero();
  return edges;
}

TEST(ErdosRenyiTest, IsConnectedWithMetropolisWeights) {
  for (const char* text : {"erdos-renyi", "erdos-renyi(p=0.3)", "erdos-renyi(p=1)"}) {
    for (int n = 1; n <= 24; ++n) {
      const SchedulePtr schedule = make_schedule(text, n, 7);
      const MatrixXd edges = edges_of(*schedule);
      ASSERT_EQ(difference(edges, edges.transpose(), 0), "");
      MatrixXd reach = MatrixXd::Identity(n, n) + edges;
      for (int doubling = 0; doubling < 5; ++doubling) reach = ((reach * reach).array() > 0).cast<double>();
      ASSERT_GT(reach.minCoeff(), 0) << text << " n=" << n << " is not connected";
      const MatrixXd expected = reference::weigh(edges, "metropolis");
      ASSERT_EQ(difference(dense_round(*schedule, 0), expected, 1e-12), "") << text << " n=" << n;
      ASSERT_EQ(difference(dense_round(*schedule, 9), expected, 1e-12), "") << text << " n=" << n;
    }
  }
}

TEST(ErdosRenyiTest, GraphsHaveTheirProbabilitiesGivenConnection) {
  const double p = 0.3;
  std::vector<int> counts(4);  // by the missing edge; the last counts complete graphs
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const MatrixXd edges = edges_of(*make_schedule("erdos-renyi(p=0.3)", 3, seed));
    std::size_t missing = 3;
    if (edges(0, 1) == 0) missing = 0;
    if (edges(0, 2) == 0) missing = 1;
    if (edges(1, 2) == 0) missing = 2;
    ++counts[missing];
  }
  const double path = p * p * (1 - p);
  const double triangle = p * p * p;
  const double connected = 3 * path + triangle;
  EXPECT_LT(
      chi_square_sigmas(counts, {path / connected, path / connected, path / connected, triangle / connected}),
      4);
}

TEST(ErdosRenyiTest, EveryPairHasItsProbability) {
  const int n = 24;  // connected with near certainty
  const int graphs = 400;
  MatrixXd sum = MatrixXd::Zero(n, n);
  for (std::uint64_t seed = 0; seed < graphs; ++seed) sum += edges_of(*make_schedule("erdos-renyi", n, seed));
  const double sigma = std::sqrt(graphs * 0.25);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) EXPECT_LT(std::abs(sum(i, j) - graphs * 0.5), 4.5 * sigma) << i << " " << j;
  }
  const double pairs = n * (n - 1) / 2.0;
  EXPECT_LT(std::abs(sum.sum() / 2 - graphs * pairs * 0.5), 4 * sigma * std::sqrt(pairs));
}

TEST(ErdosRenyiTest, IsAGraphForOtherFamilies) {
  for (const std::string graph : {"erdos-renyi(p=0.3,seed=3)", "d-equistatic(m=4,seed=3)"}) {
    for (const int n : {2, 5, 17}) {
      const MatrixXd edges = edges_of(*make_schedule(graph, n));
      const SchedulePtr one_peer = make_schedule("one-peer-of(" + graph + ")", n);
      for (Step step = 0; step < 12; ++step) {
        EXPECT_EQ(difference(dense_round(*one_peer, step), reference::one_peer_of_round(edges, step), 1e-12),
                  "")
            << graph << " n=" << n << " step=" << step;
      }
      if (graph[0] != 'e') continue;  // the directed one need not be connected
      const SchedulePtr tree = make_schedule("bfs-tree(of=" + graph + ",root=1)", n);
      const MatrixXd expected = reference::weigh(reference::bfs_tree_edges(edges, 1), "metropolis");
      EXPECT_EQ(difference(dense_round(*tree, 0), expected, 1e-12), "") << graph << " n=" << n;
    }
  }
}

TEST(ErdosRenyiTest, HasTheStatedRhoAt32) {
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    MatrixXd round = dense_round(*make_schedule("erdos-renyi", 32, seed), 0);
    round.array() -= 1.0 / 32;
    sum += reference::spectral_norm(round);
  }
  EXPECT_NEAR(sum / 40, 0.51, 0.05);
}

}  // namespace
}  // namespace starling::topology
