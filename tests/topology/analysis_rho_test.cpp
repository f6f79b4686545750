#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numbers>
#include <string>
#include <vector>

#include "starling/base/integer.h"
#include "starling/topology/analysis.h"
#include "starling/topology/spectrum.h"
#include "topology/dense_algebra.h"
#include "topology/random_checks.h"

namespace starling::topology {
namespace {

// ||W_last ... W_first - J||_2 from a dense product and its singular values; uses only the library's
// exchanges.
double dense_norm(const Schedule& schedule, Step first, Step count) {
  const Eigen::Index n = schedule.size();
  Eigen::MatrixXd product = Eigen::MatrixXd::Identity(n, n);
  for (Step t = 0; t < count; ++t) product = reference::product(dense_round(schedule, first + t), product);
  product.array() -= 1.0 / static_cast<double>(n);
  return reference::spectral_norm(product);
}

double period_norm(const Schedule& schedule) {
  return dense_norm(schedule, 0, schedule.period());
}

double to_the_period(double rho, const Schedule& schedule) {
  return std::pow(rho, static_cast<double>(schedule.period()));
}

void expect_formula(const std::string& text, Rank n) {
  const SchedulePtr schedule = make_schedule(text, n);
  ASSERT_TRUE(schedule->known_rho()) << text << " n = " << n;
  // The root of a rounding error is large, so the products are compared.
  ASSERT_NEAR(to_the_period(*schedule->known_rho(), *schedule), period_norm(*schedule), 1e-12)
      << text << " n = " << n;
  const auto found = find_rho(schedule);
  ASSERT_TRUE(found) << text;
  ASSERT_EQ(found->how, "formula") << text;
  ASSERT_EQ(found->value, *schedule->known_rho()) << text;
}

TEST(RhoTest, FormulasAgreeWithSingularValues) {
  for (Rank n = 1; n <= 64; ++n)
    for (const std::string text :
         {"ring", "ring(weights=uniform)", "ring(weights=push)", "one-way-ring", "chain", "star", "torus",
          "complete", "simple-base", "base", "base(k=2)", "aer"})
      expect_formula(text, n);
  for (Rank n = 2; n <= 64; n *= 2)
    for (const std::string text : {"hypercube", "one-peer-hypercube", "one-peer-exponential",
                                   "k-peer-exponential(k=3)", "hyper-hypercube", "fold-unfold"})
      expect_formula(text, n);
  for (Rank n = 2; n <= 64; n += 2)
    for (const std::string text :
         {"exponential", "hierarchical(outer=ring,local=2)", "hierarchical(outer=base(k=2),local=2)"})
      expect_formula(text, n);
}

TEST(RhoTest, FormulasAgreeOnEveryShape) {
  for (const Rank n : {4, 6, 8, 12, 16, 24, 30, 36, 60})
    for (Rank rows = 1; rows <= n; ++rows)
      if (n % rows == 0) expect_formula(fmt::format("torus(rows={})", rows), n);
  for (const Rank center : {0, 3, 8}) expect_formula(fmt::format("star(center={})", center), 9);
  for (const Rank n : {3, 9, 27}) expect_formula("k-peer-exponential(k=2)", n);
  for (const Rank n : {6, 12, 60}) expect_formula("hyper-hypercube(k=4)", n);
}

TEST(RhoTest, FormulasAgreeAtLargerSizes) {
  for (const std::string text : {"ring", "one-way-ring", "chain", "star", "torus", "exponential"})
    for (const Rank n : {200, 500}) expect_formula(text, n);
}

TEST(RhoTest, FormulasOfTheSpecification) {
  const auto rho = [](const std::string& text, Rank n) { return find_rho(make_schedule(text, n))->value; };
  const double pi = std::numbers::pi;
  EXPECT_DOUBLE_EQ(rho("ring", 10), 1.0 / 3 + 2.0 / 3 * std::cos(2 * pi / 10));
  EXPECT_DOUBLE_EQ(rho("one-way-ring", 10), std::cos(pi / 10));
  EXPECT_DOUBLE_EQ(rho("chain", 10), 1.0 / 3 + 2.0 / 3 * std::cos(pi / 10));
  EXPECT_DOUBLE_EQ(rho("star", 10), 0.9);
  EXPECT_DOUBLE_EQ(rho("hypercube", 64), 1 - 2.0 / 7);
  EXPECT_NEAR(rho("grid", 16), 0.86864, 5e-6);
  EXPECT_EQ(rho("complete", 10), 0);
}

TEST(RhoTest, ExponentialOfEvenAndOddN) {
  for (Rank n = 4; n <= 129; ++n) {
    const auto rho = find_rho(make_schedule("exponential", n));
    ASSERT_TRUE(rho);
    const double formula = 1 - 2.0 / (ceil_log2(n) + 1);
    if (n % 2 == 0) {
      ASSERT_DOUBLE_EQ(rho->value, formula);
    } else {
      ASSERT_EQ(rho->how, "circulant eigenvalues");
      ASSERT_LT(rho->value, formula) << n;
      ASSERT_NEAR(rho->value, period_norm(*make_schedule("exponential", n)), 1e-12) << n;
    }
  }
}

// Without a formula, rho comes from dense matrices below 128 ranks and from an iteration above; both must be
// right.
TEST(RhoTest, EigenvaluesAgreeWithSingularValues) {
  for (const std::string text :
       {"grid", "binary-tree", "k-tree(k=3)", "double-binary-trees", "erdos-renyi(p=0.2)", "one-peer-ring",
        "star(weights=uniform)", "chain(weights=laplacian)", "one-peer-of(grid)", "bfs-tree(torus)"})
    for (const Rank n : {12, 128, 130, 200}) {
      const SchedulePtr schedule = make_schedule(text, n);
      if (schedule->period() > 200) continue;
      const auto rho = find_rho(schedule);
      ASSERT_TRUE(rho) << text << " n = " << n;
      EXPECT_EQ(rho->how, "eigenvalues") << text;
      EXPECT_NEAR(to_the_period(rho->value, *schedule), period_norm(*schedule), 1e-9) << text << " n = " << n;
    }
  const SchedulePtr grid = make_schedule("grid", 500);
  EXPECT_NEAR(find_rho(grid)->value, period_norm(*grid), 1e-10);
}

TEST(RhoTest, PeriodicProductsOfCirculants) {
  for (const std::string text : {"one-peer-exponential", "k-peer-exponential(k=2)", "k-peer-exponential(k=5)",
                                 "one-peer-of(exponential)"})
    for (const Rank n : {3, 5, 6, 7, 11, 12, 13, 24, 33, 48, 63, 100}) {
      const SchedulePtr schedule = make_schedule(text, n);
      const auto rho = find_rho(schedule);
      ASSERT_TRUE(rho) << text << " n = " << n;
      EXPECT_NEAR(to_the_period(rho->value, *schedule), period_norm(*schedule), 1e-12)
          << text << " n = " << n;
      EXPECT_EQ(rho->how, rho->value > 0 ? "circulant eigenvalues" : "formula") << text << " n = " << n;
    }
}

TEST(RhoTest, EachRoundOfAPeriod) {
  for (const std::string text : {"one-peer-exponential", "base(k=1)", "base(k=2)", "one-peer-ring",
                                 "aer(local=3)", "periodic(ring,h=3)"})
    for (const Rank n : {6, 12, 18}) {
      const SchedulePtr schedule = make_schedule(text, n);
      const Analysis analysis = analyze(schedule);
      ASSERT_EQ(static_cast<Step>(analysis.round_rho.size()), schedule->period()) << text;
      for (Step t = 0; t < schedule->period(); ++t)
        EXPECT_NEAR(analysis.round_rho[static_cast<std::size_t>(t)], dense_norm(*schedule, t, 1), 1e-12)
            << text << " round " << t;
    }
  EXPECT_TRUE(analyze(make_schedule("ring", 6)).round_rho.empty());  // one round needs no list
  EXPECT_TRUE(analyze(make_schedule("random-matching", 6)).round_rho.empty());
}

TEST(RhoTest, CirculantEigenvaluesAgreeWithDense) {
  for (const std::string text : {"ring", "symmetric-exponential", "symmetric-exponential(base=2)",
                                 "u-equistatic", "ring(weights=laplacian)"})
    for (const Rank n : {2, 3, 4, 9, 16, 31, 64}) {
      const SchedulePtr schedule = make_schedule(text, n);
      const auto* circulant = dynamic_cast<const Circulant*>(schedule.get());
      ASSERT_NE(circulant, nullptr) << text;
      const Eigen::MatrixXd w = dense_round(*schedule, 0);
      const double least = reference::eigenvalues(w)[0];
      EXPECT_NEAR(circulant_least_eigenvalue(*circulant, 0), least, 1e-12) << text << " n = " << n;
      EXPECT_NEAR(circulant_deviation_norm(*circulant, 0, 1), dense_norm(*schedule, 0, 1), 1e-12)
          << text << " n = " << n;
    }
  for (const Rank n : {5, 8, 30}) {  // not symmetric, and with rounds that differ
    const SchedulePtr schedule = make_schedule("od-equidyn", n, 3);
    EXPECT_NEAR(circulant_deviation_norm(dynamic_cast<const Circulant&>(*schedule), 7, 3),
                dense_norm(*schedule, 7, 3), 1e-12);
  }
}

TEST(RhoTest, LeastEigenvalue) {
  const auto lambda_min = [](const std::string& text, Rank n) {
    return analyze(make_schedule(text, n)).lambda_min;
  };
  EXPECT_NEAR(lambda_min("ring", 10).value(), -1.0 / 3, 1e-14);
  EXPECT_NEAR(lambda_min("hypercube", 16).value(), 1 - 8.0 / 5, 1e-12);
  EXPECT_NEAR(lambda_min("complete", 9).value(), 0, 1e-12);
  EXPECT_NEAR(lambda_min("star", 9).value(), 0, 1e-12);
  EXPECT_EQ(lambda_min("ring", 1), 1.0);
  for (const Rank n : {60, 200, 300}) {  // on both sides of the limit for dense matrices
    const Eigen::MatrixXd w = dense_round(*make_schedule("chain", n), 0);
    EXPECT_NEAR(lambda_min("chain", n).value(), reference::eigenvalues(w)[0], 1e-10) << n;
  }
  EXPECT_FALSE(lambda_min("one-way-ring", 9));
  EXPECT_FALSE(lambda_min("one-peer-ring", 8));
  EXPECT_FALSE(lambda_min("random-matching", 8));
}

// The best step size of I - a L: a slightly smaller or larger one contracts less.
TEST(RhoTest, LaplacianWeightsAreTheBest) {
  for (const std::string graph : {"star", "chain", "ring", "grid", "binary-tree", "symmetric-exponential"})
    for (const Rank n : {7, 16, 33}) {
      const SchedulePtr schedule = make_schedule(graph + "(weights=laplacian)", n);
      const Eigen::MatrixXd w = dense_round(*schedule, 0);
      const Eigen::MatrixXd identity = Eigen::MatrixXd::Identity(n, n);
      const Eigen::MatrixXd mean = Eigen::MatrixXd::Constant(n, n, 1.0 / n);
      const auto scaled = [&](double factor) {
        return reference::spectral_norm(identity - factor * (identity - w) - mean);
      };
      EXPECT_NEAR(find_rho(schedule)->value, scaled(1), 1e-10) << graph << " n = " << n;
      EXPECT_LT(scaled(1), scaled(0.99)) << graph << " n = " << n;
      EXPECT_LT(scaled(1), scaled(1.01)) << graph << " n = " << n;
    }
}

// Above 512 ranks the eigenvalues come from a sparse factorization; for these graphs they are known.
TEST(RhoTest, LaplacianWeightsOfLargeGraphs) {
  const auto edge_weight = [](const std::string& text, Rank n) {
    return make_schedule(text, n)->exchange(0, n / 2).sources.at(0).weight;
  };
  const auto path = [](int k, int length) { return 2 - 2 * std::cos(std::numbers::pi * k / length); };
  for (const Rank n : {600, 2000}) {
    EXPECT_NEAR(edge_weight("chain(weights=laplacian)", n), 2 / (path(1, n) + path(n - 1, n)), 1e-9) << n;
    EXPECT_NEAR(edge_weight("star(weights=laplacian)", n), 2.0 / (1 + n), 1e-9) << n;
  }
  EXPECT_NEAR(edge_weight("grid(weights=laplacian)", 625), 2 / (path(1, 25) + 2 * path(24, 25)), 1e-9);
  EXPECT_NEAR(edge_weight("ring(weights=laplacian)", 600), 2 / (path(2, 600) + 4), 1e-12);
}

// The supremum over x of the mean of ||Wx - Jx||^2 / ||x - Jx||^2, from many rounds.
double sampled_mean_square_rho(const Schedule& schedule, int rounds) {
  const Eigen::Index n = schedule.size();
  const Eigen::MatrixXd mean = Eigen::MatrixXd::Constant(n, n, 1.0 / static_cast<double>(n));
  Eigen::MatrixXd square = Eigen::MatrixXd::Zero(n, n);
  for (int t = 0; t < rounds; ++t) {
    square += reference::gram(dense_round(schedule, t) - mean) / rounds;
  }
  return std::sqrt(reference::eigenvalues(square)[n - 1]);
}

TEST(MeanSquareRhoTest, FormulasAgreeWithSamples) {
  for (const std::string text :
       {"od-equidyn", "od-equidyn(eta=0.3)", "od-equidyn(m=4)", "ou-equidyn", "ou-equidyn(eta=0.8)",
        "ou-equidyn(m=3)", "random-matching", "el-oracle(k=1)", "el-oracle(k=3)",
        "one-peer-exponential(order=random)", "matcha(graph=ring,budget=0.5)"})
    for (const Rank n : {7, 8}) {
      const SchedulePtr schedule = make_schedule(text, n, 5);
      const Analysis analysis = analyze(schedule);
      ASSERT_TRUE(analysis.rho) << text;
      EXPECT_EQ(analysis.rho->how, "formula") << text;
      EXPECT_TRUE(analysis.rho_is_mean_square) << text;
      EXPECT_NEAR(analysis.rho->value, sampled_mean_square_rho(*schedule, 6'000), 0.012)
          << text << " n = " << n;
    }
}

TEST(MeanSquareRhoTest, StatedValues) {
  const auto rho = [](const std::string& text, Rank n) { return find_rho(make_schedule(text, n))->value; };
  EXPECT_NEAR(rho("od-equidyn", 10), std::sqrt(8.0 / 18), 1e-14);
  EXPECT_NEAR(rho("random-matching", 10), std::sqrt(8.0 / 18), 1e-14);
  EXPECT_NEAR(rho("random-matching", 9), std::sqrt(0.5), 1e-14);
  EXPECT_NEAR(rho("el-oracle(k=3)", 10), std::sqrt(6.0 / 36), 1e-14);
  EXPECT_NEAR(rho("one-peer-exponential(order=random)", 12), std::sqrt(0.75), 1e-14);
  EXPECT_NEAR(rho("ou-equidyn", 8), 0.707, 5e-4);
  EXPECT_NEAR(rho("ou-equidyn", 32), 0.748, 5e-4);
  EXPECT_NEAR(rho("ou-equidyn", 4000), 0.758, 5e-4);
  // (n-1)/(2n), the step size on the slide
  EXPECT_NEAR(rho("od-equidyn(eta=0.5)", 10), std::sqrt(0.45), 1e-14);
}

// Inside of live(...) the formula is not used, so sampling must give the same number.
TEST(MeanSquareRhoTest, SamplesAgreeWithFormulas) {
  for (const std::string inner : {"random-matching", "od-equidyn", "el-oracle(k=2)", "ou-equidyn"}) {
    const Analysis analysis = analyze(make_schedule("live(" + inner + ",members=[0..15])", 16, 2));
    ASSERT_TRUE(analysis.rho) << inner;
    EXPECT_EQ(analysis.rho->how, "sampled") << inner;
    EXPECT_TRUE(analysis.rho_is_mean_square);
    ASSERT_GT(analysis.rho->standard_error, 0) << inner;
    ASSERT_LT(analysis.rho->standard_error, 0.05) << inner;
    const double formula = find_rho(make_schedule(inner, 16))->value;
    EXPECT_NEAR(analysis.rho->value, formula, 4 * analysis.rho->standard_error) << inner;
  }
}

}  // namespace
}  // namespace starling::topology
