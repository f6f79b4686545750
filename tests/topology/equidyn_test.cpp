#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "starling/topology/registry.h"
#include "topology/random_checks.h"
#include "topology/schedule_checks.h"

namespace starling::topology {
namespace {

using Eigen::MatrixXd;

/// The greedy loop of OU-EquiDyn.
std::vector<Rank> greedy_pairs(int n, int u, int s) {
  std::vector<Rank> partner(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) partner[static_cast<std::size_t>(i)] = i;
  std::vector<bool> taken(static_cast<std::size_t>(n), false);
  for (int t = 0; t < n; ++t) {
    const auto i = static_cast<std::size_t>((s + t) % n);
    const std::size_t j = (i + static_cast<std::size_t>(u)) % static_cast<std::size_t>(n);
    if (taken[i] || taken[j]) continue;
    taken[i] = taken[j] = true;
    partner[i] = static_cast<Rank>(j);
    partner[j] = static_cast<Rank>(i);
  }
  return partner;
}

/// The mean over all (u, s) of the matrix Q that swaps the pairs.
MatrixXd mean_swap(int n) {
  MatrixXd mean = MatrixXd::Zero(n, n);
  for (int u = 1; u < n; ++u) {
    for (int s = 0; s < n; ++s) {
      const std::vector<Rank> partner = greedy_pairs(n, u, s);
      for (int i = 0; i < n; ++i) mean(i, partner[static_cast<std::size_t>(i)]) += 1.0 / (n * (n - 1));
    }
  }
  return mean;
}

int ceil_log2(int n) {
  int log = 0;
  while ((1 << log) < n) ++log;
  return log;
}

TEST(EquiStaticTest, IsTheMeanOfTheDraws) {
  for (const int n : {2, 3, 8, 13, 64}) {
    for (const int m : {0, 1, 3, 20}) {
      const int draws = m > 0 ? m : ceil_log2(n);
      const std::string arguments = m > 0 ? fmt::format("(m={})", m) : "";
      const SchedulePtr directed = make_schedule("d-equistatic" + arguments, n, 11);
      const SchedulePtr undirected = make_schedule("u-equistatic" + arguments, n, 11);
      EXPECT_FALSE(directed->random());
      const std::vector<Rank> hops = equistatic_hops(*directed, draws);
      EXPECT_EQ(static_cast<int>(hops.size()), draws) << "n=" << n;
      MatrixXd expected = MatrixXd::Identity(n, n) / n;
      for (const Rank u : hops) {
        EXPECT_TRUE(u >= 1 && u < n);
        for (int i = 0; i < n; ++i) expected(i, (i - u + n) % n) += (n - 1.0) / n / draws;
      }
      EXPECT_EQ(difference(dense_round(*directed, 0), expected, 1e-12), "") << "n=" << n << " m=" << m;
      EXPECT_EQ(difference(dense_round(*directed, 99), expected, 1e-12), "") << "n=" << n << " m=" << m;
      const MatrixXd symmetric = (expected + expected.transpose()) / 2;
      EXPECT_EQ(difference(dense_round(*undirected, 5), symmetric, 1e-12), "") << "n=" << n << " m=" << m;
    }
  }
}

TEST(EquiStaticTest, DrawsUniformlyWithReplacement) {
  const int n = 8;
  std::vector<int> counts(n - 1);
  std::vector<int> pairs((n - 1) * (n - 1));
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const SchedulePtr schedule = make_schedule("d-equistatic(m=2)", n, seed);
    const std::vector<Rank> hops = equistatic_hops(*schedule, 2);
    ASSERT_EQ(hops.size(), 2U);
    for (const Rank u : hops) ++counts[static_cast<std::size_t>(u - 1)];
    const auto [low, high] = std::minmax(hops[0], hops[1]);
    ++pairs[static_cast<std::size_t>((low - 1) * (n - 1) + high - 1)];
  }
  EXPECT_LT(chi_square_sigmas(counts), 4);
  std::vector<int> seen;
  std::vector<double> probabilities;
  for (int low = 0; low < n - 1; ++low) {
    for (int high = low; high < n - 1; ++high) {
      seen.push_back(pairs[static_cast<std::size_t>(low * (n - 1) + high)]);
      probabilities.push_back((low == high ? 1.0 : 2.0) / ((n - 1) * (n - 1)));
    }
  }
  EXPECT_LT(chi_square_sigmas(seen, probabilities), 4);
}

TEST(EquiStaticTest, ReachesItsBoundOnRho) {
  const int n = 64;
  const double eps = 0.5;
  const double p = 0.05;
  const int m = static_cast<int>(std::ceil(8 * std::log(2 * n / p) / (3 * eps * eps)));
  int misses = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const MatrixXd round = dense_round(*make_schedule(fmt::format("d-equistatic(m={})", m), n, seed), 0);
    const MatrixXd rest = round - MatrixXd::Constant(n, n, 1.0 / n);
    if (reference::spectral_norm(rest) >= eps) ++misses;
  }
  EXPECT_LE(misses, 100 * p + 4 * std::sqrt(100 * p));
}

TEST(OdEquiDynTest, ReceivesFromOneHop) {
  for (const int n : {2, 3, 7, 16}) {
    for (const double eta : {0.0, 0.3, 1.0}) {  // 0: the default
      const std::string text = eta > 0 ? fmt::format("od-equidyn(eta={})", eta) : "od-equidyn";
      const SchedulePtr schedule = make_schedule(text, n, 4);
      EXPECT_EQ(schedule->random(), n > 2);  // with only one hop there is nothing to draw
      EXPECT_EQ(schedule->period(), n > 2 ? 0 : 1);
      const double weight = eta > 0 ? eta * (n - 1) / n : 0.5;
      for (Step step = 0; step < 20; ++step) {
        const Rank u = (n - partners(*schedule, step)[0]) % n;
        ASSERT_NE(u, 0);
        MatrixXd expected = (1 - weight) * MatrixXd::Identity(n, n);
        for (int i = 0; i < n; ++i) expected(i, (i - u + n) % n) += weight;
        ASSERT_EQ(difference(dense_round(*schedule, step), expected, 1e-12), "") << text << " n=" << n;
      }
    }
  }
}

TEST(OdEquiDynTest, HopsAreUniformAndIndependent) {
  const int n = 8;
  const SchedulePtr schedule = make_schedule("od-equidyn", n, 12);
  std::vector<int> counts(n - 1);
  std::vector<int> pairs((n - 1) * (n - 1));
  int last = -1;
  for (Step step = 0; step < 20000; ++step) {
    const int hop = n - schedule->exchange(step, 0).sources.at(0).rank - 1;
    ++counts[static_cast<std::size_t>(hop)];
    if (last >= 0) ++pairs[static_cast<std::size_t>(last * (n - 1) + hop)];
    last = hop;
  }
  EXPECT_LT(chi_square_sigmas(counts), 4);
  EXPECT_LT(chi_square_sigmas(pairs), 4);
}

TEST(OdEquiDynTest, ContractsAsStated) {
  for (const int n : {3, 5, 8, 20}) {
    const SchedulePtr schedule = make_schedule("od-equidyn", n, 6);
    const double expected = (n - 2.0) / (2 * (n - 1.0));
    EXPECT_LT(contraction_sigmas(*schedule, random_vector(n, 1), 5000, expected), 4) << "n=" << n;
    ASSERT_TRUE(schedule->known_mean_square_rho().has_value());
    EXPECT_NEAR(*schedule->known_mean_square_rho(), std::sqrt(expected), 1e-12);
  }
}

TEST(OdEquiDynTest, DrawsFromTheEquiStaticHops) {
  const int n = 50;
  const int m = 6;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const std::vector<Rank> hops = equistatic_hops(*make_schedule("d-equistatic(m=6)", n, seed), m);
    const SchedulePtr schedule = make_schedule("od-equidyn(m=6)", n, seed);
    std::map<Rank, int> seen;
    for (Step step = 0; step < 3000; ++step) ++seen[n - schedule->exchange(step, 0).sources.at(0).rank];
    std::vector<int> counts;
    std::vector<double> probabilities;
    for (const Rank u : std::set<Rank>(hops.begin(), hops.end())) {
      counts.push_back(seen[u]);
      probabilities.push_back(static_cast<double>(std::count(hops.begin(), hops.end(), u)) / m);
    }
    EXPECT_EQ(seen.size(), counts.size()) << "a hop that EquiStatic did not draw, seed " << seed;
    EXPECT_LT(chi_square_sigmas(counts, probabilities), 4) << "seed " << seed;
  }
}

TEST(OuEquiDynTest, PairsAsTheGreedyLoop) {
  for (int n = 2; n <= 24; ++n) {
    const SchedulePtr schedule = make_schedule("ou-equidyn", n, 21);
    EXPECT_EQ(schedule->period(), n > 2 ? 0 : 1);
    for (Step step = 0; step < 40; ++step) {
      const std::vector<Rank> actual = partners(*schedule, step);
      bool found = false;
      for (int u = 1; u < n && !found; ++u) {
        for (int s = 0; s < n && !found; ++s) found = greedy_pairs(n, u, s) == actual;
      }
      ASSERT_TRUE(found) << "n=" << n << " step=" << step;
    }
  }
}

TEST(OuEquiDynTest, WeighsByEta) {
  for (const int n : {2, 5, 12}) {
    for (const double eta : {0.0, 0.4, 1.0}) {  // 0: the default
      const SchedulePtr schedule =
          make_schedule(eta > 0 ? fmt::format("ou-equidyn(eta={})", eta) : "ou-equidyn", n, 3);
      const double e = eta > 0 ? eta : n / (2.0 * (n - 1));
      for (Step step = 0; step < 10; ++step) {
        const std::vector<Rank> partner = partners(*schedule, step);
        MatrixXd swap = MatrixXd::Zero(n, n);
        for (int i = 0; i < n; ++i) swap(i, partner[static_cast<std::size_t>(i)]) = 1;
        const MatrixXd one = MatrixXd::Identity(n, n);
        const MatrixXd expected = (1 - e) * one + e * (one / n + (n - 1.0) / n * swap);
        ASSERT_EQ(difference(dense_round(*schedule, step), expected, 1e-12), "")
            << "n=" << n << " eta=" << eta;
      }
    }
  }
}

TEST(OuEquiDynTest, PairingsHaveTheirProbabilities) {
  for (const int n : {3, 5, 6, 8}) {
    std::map<std::vector<Rank>, double> probability;
    for (int u = 1; u < n; ++u) {
      for (int s = 0; s < n; ++s) probability[greedy_pairs(n, u, s)] += 1.0 / (n * (n - 1));
    }
    const SchedulePtr schedule = make_schedule("ou-equidyn", n, 8);
    std::map<std::vector<Rank>, int> seen;
    for (Step step = 0; step < 8000; ++step) ++seen[partners(*schedule, step)];
    std::vector<int> counts;
    std::vector<double> probabilities;
    for (const auto& [pairing, chance] : probability) {
      counts.push_back(seen[pairing]);
      probabilities.push_back(chance);
    }
    EXPECT_EQ(seen.size(), counts.size()) << "n=" << n;
    EXPECT_TRUE(counts.size() == 1 || chi_square_sigmas(counts, probabilities) < 4) << "n=" << n;
  }
}

TEST(OuEquiDynTest, ContractsAsStated) {
  struct Figure {
    int n;
    double rho;
  };
  for (const Figure& figure : {Figure{8, 0.707}, Figure{32, 0.748}}) {
    // With halves W^T W = (I + Q) / 2.
    // Subtracts the constant vector's part, so that it does not give the largest eigenvalue.
    const MatrixXd mean = mean_swap(figure.n) - MatrixXd::Constant(figure.n, figure.n, 3.0 / figure.n);
    const double squared = (1 + reference::eigenvalues(mean)(figure.n - 1)) / 2;
    EXPECT_NEAR(std::sqrt(squared), figure.rho, 6e-4) << "n=" << figure.n;
    const Eigen::VectorXd worst = reference::last_eigenvector(mean);
    const SchedulePtr schedule = make_schedule("ou-equidyn", figure.n, 17);
    EXPECT_LT(contraction_sigmas(*schedule, worst, 4000, squared), 4) << "n=" << figure.n;
  }
}

TEST(OuEquiDynTest, DrawsFromTheEquiStaticHops) {
  const int n = 23;
  const std::vector<Rank> hops = equistatic_hops(*make_schedule("d-equistatic(m=3)", n, 9), 3);
  const SchedulePtr schedule = make_schedule("ou-equidyn(m=3)", n, 9);
  for (Step step = 0; step < 200; ++step) {
    const std::vector<Rank> actual = partners(*schedule, step);
    bool found = false;
    for (const Rank u : hops) {
      for (int s = 0; s < n && !found; ++s) found = greedy_pairs(n, u, s) == actual;
    }
    ASSERT_TRUE(found) << "step=" << step;
  }
}

}  // namespace
}  // namespace starling::topology
