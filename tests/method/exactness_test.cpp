#include <cmath>
#include <gtest/gtest.h>

#include "base/test_name.h"
#include "method/on_flock.h"
#include "record/folder.h"

// Every rank minimizes a different function with a constant step size: tests which methods reach the minimum
// of the sum, and how far the others stay from it.

namespace starling::method {
namespace {

struct Exact {
  std::string method;
  std::string topology;
  Rank n = 8;
  double lr = 0.2;
  Step steps = 1000;
};

void PrintTo(const Exact& one, std::ostream* out) {
  *out << one.method << " on " << one.topology;
}

/// The largest distance of a rank from the optimum at the end.
template <typename T>
Number distance_of(const Exact& one, Step steps, bool equal_starts = false) {
  MethodRun run;
  run.problem = {.n = one.n, .equal_starts = equal_starts};
  run.options = {
      .method = one.method, .topology = one.topology, .optimizer = fmt::format("sgd(lr={})", one.lr)};
  run.steps = steps;
  const Trajectory<T> found = trajectory<T>(run);
  const Vector best = run.problem.optimum();
  Number largest = 0;
  for (Rank rank = 0; rank < one.n; ++rank)
    for (std::size_t k = 0; k < best.size(); ++k) {
      const Number off = std::abs(static_cast<Number>(found.last(rank)[k]) - best[k]);
      largest = off < largest ? largest : off;  // keeps NaN
    }
  return largest;
}

// An all-reduce of gradients keeps the differences between starts.
TEST(AllreduceTest, ReachesTheOptimumFromEqualStarts) {
  EXPECT_LT(distance_of<double>({"allreduce", "ring", 5, 0.1}, 900, true), 1e-10L);
  EXPECT_GT(distance_of<double>({"allreduce", "ring", 5, 0.1}, 900, false), 1e-3L);
}

class ExactnessTest : public testing::TestWithParam<Exact> {};

TEST_P(ExactnessTest, ReachesTheOptimumWithAConstantStep) {
  EXPECT_LT(distance_of<double>(GetParam(), GetParam().steps), 1e-10L);
}

// Rounding errors of the mean must not accumulate.
TEST_P(ExactnessTest, StaysThereInFloat32) {
  Exact small = GetParam();
  small.n = std::min<Rank>(small.n, 9);
  EXPECT_LT(distance_of<float>(small, 30'000), 1e-5L);
}

std::string exact_name(const testing::TestParamInfo<Exact>& test) {
  return test_name(fmt::format("{}_{}_{}", test.param.method, test.param.topology, test.param.n));
}

INSTANTIATE_TEST_SUITE_P(
    All, ExactnessTest,
    testing::Values(
        Exact{"extra", "ring"}, Exact{"extra", "ring", 31}, Exact{"extra", "torus", 16},
        Exact{"extra", "u-equistatic", 64}, Exact{"exact-diffusion", "ring"},
        Exact{"exact-diffusion", "torus", 12}, Exact{"exact-diffusion", "u-equistatic", 64},
        Exact{"exact-diffusion", "star"}, Exact{"d2", "ring"}, Exact{"d2", "ring", 25},
        Exact{"d2", "star", 16}, Exact{"gradient-tracking", "ring", 8, 0.1},
        Exact{"gradient-tracking", "exponential", 64, 0.1},
        Exact{"gradient-tracking", "one-peer-exponential", 33, 0.1}, Exact{"diging", "ring", 8, 0.1},
        Exact{"diging", "exponential", 64, 0.1}, Exact{"diging", "one-peer-exponential", 33, 0.1},
        Exact{"push-diging", "star(weights=push)", 8, 0.03, 4000},
        Exact{"push-diging", "one-peer-exponential", 16, 0.1}, Exact{"proxskip(p=0.5)", "ring"},
        Exact{"relay-sgd", "chain", 8, 0.1, 1500}, Exact{"relay-sgd", "binary-tree", 64, 0.1, 2500},
        Exact{"relay-sgd", "double-binary-trees", 64, 0.1, 2500}, Exact{"relay-sgd", "star", 17, 0.1, 2500},
        Exact{"relay-sgd(missing=own)", "bfs-tree(of=torus)", 16, 0.1, 2500},
        Exact{"relay-sgd(overlap=true)", "chain", 8, 0.1, 2500}),
    exact_name);

// 8 x 8 elements travel as two vectors each way; the remainder is fed back later.
TEST(PowerSgdTest, IsLossyAndReachesTheOptimumByFeedback) {
  MethodRun run;
  run.problem = {.n = 4, .count = 64, .equal_starts = true};
  run.options = {.method = "powersgd(rank=2)", .topology = "ring", .optimizer = "sgd(lr=0.05)"};
  run.steps = 3000;
  const auto found = trajectory<double>(run);
  const Vector best = run.problem.optimum();
  Number off = 0;
  for (std::size_t k = 0; k < best.size(); ++k)
    off = std::max(off, std::abs(static_cast<Number>(found.last(0)[k]) - best[k]));
  EXPECT_LT(off, 1e-3L);
  for (Rank rank = 1; rank < 4; ++rank) EXPECT_EQ(found.last(rank), found.last(0));
  run.options.method = "allreduce";
  run.steps = 3;
  const auto exact = trajectory<double>(run);
  Number difference = 0;
  for (std::size_t k = 0; k < best.size(); ++k)
    difference = std::max<Number>(difference, std::abs(exact.at(0, 2)[k] - found.at(0, 2)[k]));
  EXPECT_GT(difference, 1e-2L);
}

// Out-degrees differ, so only columns sum to one.
TEST(PushDigingTest, IsExactOnARandomDigraph) {
  const RecordFolder folder;
  std::string edges;
  Random random(7, 0, 0);
  for (int from = 0; from < 6; ++from)
    for (int to = 0; to < 6; ++to)
      if (from != to && (to == (from + 1) % 6 || random.uniform() < 0.3))
        edges += fmt::format("{},{}\n", from, to);
  folder.write("digraph.csv", edges);
  const std::string topology =
      fmt::format("custom(file=\"{}\",directed=yes,weights=push)", folder.path("digraph.csv"));
  EXPECT_LT(distance_of<double>({"push-diging", topology, 6, 0.03}, 4000), 1e-10L);
  EXPECT_LT(distance_of<float>({"push-diging", topology, 6, 0.03}, 30'000), 1e-5L);
  EXPECT_GT(distance_of<double>({"push-sum", topology, 6, 0.03}, 4000), 1e-3L);
}

}  // namespace
}  // namespace starling::method
