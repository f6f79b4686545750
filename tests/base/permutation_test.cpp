#include "starling/base/permutation.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <vector>

#include "base/chi_square.h"

namespace starling {
namespace {

std::vector<Rank> images(Rank n, std::uint64_t seed, Step step) {
  std::vector<Rank> table(static_cast<std::size_t>(n));
  std::vector<Rank> scratch;
  Permutation(n, seed, step).table(table, scratch);
  return table;
}

bool is_bijective(std::vector<Rank> table) {
  std::sort(table.begin(), table.end());
  for (std::size_t i = 0; i < table.size(); ++i)
    if (table[i] != static_cast<Rank>(i)) return false;
  return true;
}

void expect_permutation(Rank n, std::uint64_t seed, Step step, Rank stride) {
  const Permutation permutation(n, seed, step);
  const auto table = images(n, seed, step);
  ASSERT_TRUE(is_bijective(table)) << n;
  for (Rank i = 0; i < n; i += stride) {
    ASSERT_EQ(permutation(i), table[static_cast<std::size_t>(i)]) << n << " at " << i;
    ASSERT_EQ(permutation.inverse(table[static_cast<std::size_t>(i)]), i) << n << " at " << i;
  }
}

TEST(PermutationTest, IsBijectiveForEverySmallN) {
  for (Rank n = 1; n <= 600; ++n) expect_permutation(n, 5, n, 1);
}

// Near squares and products the rectangle of cells changes its shape.
TEST(PermutationTest, IsBijectiveForLargerN) {
  for (const Rank n : {1023, 1024, 1025, 4095, 4096, 4097, 4900, 4970, 4971, 10'100, 65'535, 65'536, 65'537})
    for (const Step step : {Step{0}, Step{1}, Step{1} << 40})
      expect_permutation(n, 0xfedcba9876543210, step, 7);
  expect_permutation(1'000'003, 1, 2, 997);
}

TEST(PermutationTest, SingleElementsNearTheLargestN) {
  const Rank n = 2'147'483'647;
  const Permutation permutation(n, 3, 4);
  for (const Rank i : {0, 1, 46'340, 46'341, 1'000'000'007, n - 2, n - 1}) {
    const Rank image = permutation(i);
    ASSERT_GE(image, 0);
    ASSERT_LT(image, n);
    EXPECT_EQ(permutation.inverse(image), i);
  }
}

TEST(PermutationTest, TableReusesItsScratch) {
  std::vector<Rank> scratch;
  for (const Rank n : {5000, 3, 700}) {  // shrinking and growing again
    std::vector<Rank> table(static_cast<std::size_t>(n));
    Permutation(n, 1, 1).table(table, scratch);
    EXPECT_EQ(table, images(n, 1, 1));
  }
}

TEST(PermutationTest, SeedAndStepBothMatter) {
  const auto table = images(1000, 1, 1);
  EXPECT_EQ(table, images(1000, 1, 1));
  EXPECT_NE(table, images(1000, 2, 1));
  EXPECT_NE(table, images(1000, 1, 2));
  EXPECT_NE(table, images(1000, 1, Step{1} + (Step{1} << 32)));
}

TEST(PermutationTest, ImageOfOneElementIsUniform) {
  for (const Rank n : {2, 3, 5, 6, 10, 17, 100, 257}) {
    std::vector<int> forward(static_cast<std::size_t>(n), 0);
    std::vector<int> backward(static_cast<std::size_t>(n), 0);
    for (Step step = 0; step < 20'000; ++step) {
      const Permutation permutation(n, 42, step);
      ++forward[static_cast<std::size_t>(permutation(n / 2))];
      ++backward[static_cast<std::size_t>(permutation.inverse(n - 1))];
    }
    EXPECT_LT(std::abs(chi_square_sigmas(forward)), kLikelySigmas) << n;
    EXPECT_LT(std::abs(chi_square_sigmas(backward)), kLikelySigmas) << n;
  }
}

TEST(PermutationTest, AllPermutationsOfFourAreEquallyLikely) {
  std::map<std::vector<Rank>, int> seen;
  for (Step step = 0; step < 48'000; ++step) ++seen[images(4, 7, step)];
  ASSERT_EQ(seen.size(), 24u);
  std::vector<int> counts;
  for (const auto& [permutation, count] : seen) counts.push_back(count);
  EXPECT_LT(std::abs(chi_square_sigmas(counts)), kLikelySigmas);
}

// Pairs neighbors in the permuted line; six ranks have 15 possible matchings.
TEST(PermutationTest, PairingsOfSixAreEquallyLikely) {
  std::map<std::vector<Rank>, int> seen;
  for (Step step = 0; step < 30'000; ++step) {
    const auto line = images(6, 8, step);
    std::vector<Rank> partner(6);
    for (std::size_t a = 0; a < 6; ++a) partner[static_cast<std::size_t>(line[a])] = line[a ^ 1];
    ++seen[partner];
  }
  ASSERT_EQ(seen.size(), 15u);
  std::vector<int> counts;
  for (const auto& [partner, count] : seen) counts.push_back(count);
  EXPECT_LT(std::abs(chi_square_sigmas(counts)), kLikelySigmas);
}

TEST(PermutationTest, ConsecutiveStepsAndSeedsAreIndependent) {
  constexpr Rank kN = 6;
  std::vector<int> steps(kN * kN, 0);
  std::vector<int> seeds(kN * kN, 0);
  for (Step t = 0; t < 60'000; ++t) {
    const Rank now = Permutation(kN, 9, t)(0);
    ++steps[static_cast<std::size_t>(now * kN + Permutation(kN, 9, t + 1)(0))];
    ++seeds[static_cast<std::size_t>(now * kN + Permutation(kN, 10, t)(0))];
  }
  EXPECT_LT(std::abs(chi_square_sigmas(steps)), kLikelySigmas);
  EXPECT_LT(std::abs(chi_square_sigmas(seeds)), kLikelySigmas);
}

// Neighboring elements share half of the input of a Feistel round; their images must still be independent.
TEST(PermutationTest, NeighborsPartOnALargeRing) {
  constexpr Rank kN = 10'000;
  std::vector<int> distance(20, 0);
  for (Step step = 0; step < 40'000; ++step) {
    const Permutation permutation(kN, 13, step);
    const Rank gap = (permutation(1) - permutation(0) + kN) % kN;  // uniform on 1 .. n-1
    ++distance[static_cast<std::size_t>((gap - 1) * 20 / (kN - 1))];
  }
  EXPECT_LT(std::abs(chi_square_sigmas(distance)), kLikelySigmas);
}

}  // namespace
}  // namespace starling
