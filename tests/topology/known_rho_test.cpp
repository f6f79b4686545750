#include <algorithm>
#include <cmath>
#include <exception>
#include <gtest/gtest.h>
#include <numbers>
#include <string>

#include "starling/topology/registry.h"
#include "topology/dense_reference.h"

namespace starling::topology {
namespace {

using reference::Matrix;

double distance_from_mean(const Matrix& product) {
  const Matrix rest =
      product - Matrix::Constant(product.rows(), product.cols(), 1.0 / static_cast<double>(product.rows()));
  return std::sqrt(std::max(reference::eigenvalues(reference::gram(rest)).maxCoeff(), 0.0));
}

TEST(KnownRhoTest, EqualsTheReference) {
  for (const char* text : {"ring",
                           "one-way-ring",
                           "chain",
                           "star",
                           "star(center=1)",
                           "grid",
                           "torus",
                           "torus(rows=2)",
                           "complete",
                           "exponential",
                           "exponential(base=3)",
                           "symmetric-exponential",
                           "symmetric-exponential(base=2)",
                           "binary-tree",
                           "double-binary-trees",
                           "k-tree(k=3)",
                           "bfs-tree(of=ring)",
                           "one-peer-exponential",
                           "k-peer-exponential(k=2)",
                           "k-peer-exponential(k=3)",
                           "one-peer-ring",
                           "aer",
                           "simple-base(k=1)",
                           "base(k=2)",
                           "one-peer-of(ring)",
                           "inner-outer-exponential(local=3)",
                           "hierarchical(outer=ring,local=3)",
                           "hierarchical(outer=chain,local=2)",
                           "hierarchical(outer=one-peer-ring,local=2)",
                           "periodic(ring,h=4)",
                           "periodic(one-peer-exponential,h=3)",
                           "live(ring,members=[0,1])",
                           "hypercube",
                           "one-peer-hypercube",
                           "hyper-hypercube(k=4)"}) {
    for (int n = 1; n <= 36; ++n) {
      SchedulePtr schedule;
      try {
        schedule = make_schedule(text, n);
      } catch (const std::exception&) {
        continue;  // family_test.cpp tests which n are valid
      }
      if (!schedule->known_rho() || schedule->period() > 100) continue;
      const reference::DenseSchedule dense = reference::dense_schedule(text, n);
      Matrix product = Matrix::Identity(n, n);
      for (Step step = 0; step < schedule->period(); ++step)
        product = reference::product(dense(step).a, product);
      // Compares the product's norm, since the root of a rounding error is large.
      EXPECT_NEAR(std::pow(*schedule->known_rho(), schedule->period()), distance_from_mean(product), 1e-7)
          << text << " n=" << n;
    }
  }
}

double known(const std::string& text, int n) {
  return make_schedule(text, n)->known_rho().value_or(-1);
}

TEST(KnownRhoTest, FollowsTheFormulasOfTheSpecification) {
  const double pi = std::numbers::pi;
  for (int n = 3; n <= 60; ++n) {
    SCOPED_TRACE(n);
    EXPECT_NEAR(known("ring", n), 1.0 / 3 + 2.0 / 3 * std::cos(2 * pi / n), 1e-12);
    EXPECT_NEAR(known("one-way-ring", n), std::cos(pi / n), 1e-12);
    EXPECT_NEAR(known("chain", n), 1.0 / 3 + 2.0 / 3 * std::cos(pi / n), 1e-12);
    EXPECT_NEAR(known("star", n), 1 - 1.0 / n, 1e-12);
    EXPECT_NEAR(known("complete", n), 0, 1e-12);
    int tau = 0;
    while ((1 << tau) < n) ++tau;
    if (n % 2 == 0) {
      EXPECT_NEAR(known("exponential", n), 1 - 2.0 / (tau + 1), 1e-12);
    }
    if (1 << tau == n) {
      EXPECT_NEAR(known("hypercube", n), 1 - 2.0 / (tau + 1), 1e-12);
    }
    if (n % 2 == 1) {
      EXPECT_LT(known("exponential", n), 1 - 2.0 / (tau + 1));
    }
  }
}

TEST(KnownRhoTest, IsZeroUpToTwoRanks) {
  for (const char* text : {"ring", "one-way-ring", "chain", "star", "grid", "torus", "hypercube", "complete",
                           "exponential", "symmetric-exponential", "binary-tree", "k-tree(k=3)"}) {
    for (const int n : {1, 2}) {
      EXPECT_LT(distance_from_mean(reference::dense_schedule(text, n)(0).a), 1e-12) << text << " n=" << n;
      const auto rho = make_schedule(text, n)->known_rho();
      if (rho.has_value()) {
        EXPECT_NEAR(*rho, 0, 1e-12) << text << " n=" << n;
      }
    }
  }
}

TEST(KnownRhoTest, ReferenceReachesTheSlidesFigureForTheGrid) {
  EXPECT_NEAR(distance_from_mean(reference::dense_schedule("grid", 16)(0).a), 0.86864, 5e-6);
}

}  // namespace
}  // namespace starling::topology
