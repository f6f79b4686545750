#include "starling/base/random.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "base/chi_square.h"

namespace starling {
namespace {

using Block = std::array<std::uint32_t, 4>;

// The known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // The key's first word is the low half.
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Programs in other languages that need the same draws rely on exactly this layout.
TEST(RandomTest, DrawsAreTheWordsOfNumberedBlocks) {
  const std::uint64_t seed = 0x123456789abcdef0;
  const std::uint64_t position = 0x0fedcba987654321;
  Random random(seed, position, 77);
  for (std::uint32_t block = 0; block < 5; ++block) {
    const Block word = philox({0x87654321, 0x0fedcba9, block, 77}, seed);
    EXPECT_EQ(random.next(), (std::uint64_t{word[1]} << 32) | word[0]);
    EXPECT_EQ(random.next(), (std::uint64_t{word[3]} << 32) | word[2]);
  }
}

TEST(RandomTest, SeedPositionAndStreamAllMatter) {
  std::set<std::uint64_t> seen;
  for (const std::uint64_t seed :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, std::uint64_t{1} << 63})
    for (const std::uint64_t position :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, std::uint64_t{1} << 62})
      for (const std::uint32_t stream : {0u, 1u, 0x80000000u}) {
        Random random(seed, position, stream);
        seen.insert(random.next());
        seen.insert(random.next());
      }
  EXPECT_EQ(seen.size(), 2u * 4 * 4 * 3);
}

TEST(RandomTest, BelowIsTheHighHalfOfAProduct) {
  __extension__ using Wide = unsigned __int128;
  Random words(3, 0, 0);
  for (const std::uint32_t bound : {1u, 2u, 3u, 1000u, 0x7fffffffu, 0x80000001u, 0xffffffffu}) {
    for (int i = 0; i < 1000; ++i) {
      Random same = words;
      const auto expected = static_cast<std::uint32_t>((static_cast<Wide>(words.next()) * bound) >> 64);
      ASSERT_EQ(same.below(bound), expected) << bound;
      ASSERT_LT(expected, bound);
    }
  }
}

TEST(RandomTest, BelowIsUniform) {
  for (const std::uint32_t bound : {2u, 3u, 6u, 7u, 100u, 4899u}) {
    std::vector<int> counts(bound, 0);
    Random random(11, bound, 0);
    for (std::uint32_t i = 0; i < 100 * bound + 100'000; ++i) ++counts[random.below(bound)];
    EXPECT_LT(std::abs(chi_square_sigmas(counts)), kLikelySigmas) << bound;
  }
  // With a bound of 3 * 2^30, a generator that takes a 32-bit remainder is biased toward the first third.
  std::vector<int> thirds(3, 0);
  Random random(12, 0, 0);
  for (int i = 0; i < 300'000; ++i) ++thirds[random.below(3u << 30) >> 30];
  EXPECT_LT(std::abs(chi_square_sigmas(thirds)), kLikelySigmas);
}

// Topologies draw once per step, so first draws at different positions must be independent.
TEST(RandomTest, FirstDrawsOfConsecutivePositionsAreIndependent) {
  std::vector<int> pairs(64, 0);
  std::uint32_t before = Random(5, 0, stream::kEquiDyn).below(8);
  for (std::uint64_t step = 1; step <= 200'000; ++step) {
    const std::uint32_t now = Random(5, step, stream::kEquiDyn).below(8);
    ++pairs[before * 8 + now];
    before = now;
  }
  EXPECT_LT(std::abs(chi_square_sigmas(pairs)), kLikelySigmas);
}

TEST(RandomTest, UniformHas53BitsBelowOne) {
  Random random(9, 0, 0);
  std::vector<int> counts(64, 0);
  bool low_bit = false;
  for (int i = 0; i < 100'000; ++i) {
    const double value = random.uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    const double scaled = std::ldexp(value, 53);
    ASSERT_EQ(scaled, std::floor(scaled));
    low_bit = low_bit || std::fmod(scaled, 2) == 1;
    ++counts[static_cast<std::size_t>(value * 64)];
  }
  EXPECT_TRUE(low_bit);
  EXPECT_LT(std::abs(chi_square_sigmas(counts)), kLikelySigmas);
}

TEST(RandomTest, NormalHasItsMomentsAndTails) {
  constexpr int kCount = 1'000'000;
  Random random(1, 2, 3);
  double before = random.normal();
  std::array<double, 5> moments{};
  double neighbors = 0;
  int beyond_three = 0;
  std::vector<int> sides(2, 0);
  for (int i = 0; i < kCount; ++i) {
    const double z = random.normal();
    ASSERT_TRUE(std::isfinite(z));
    for (std::size_t k = 1; k < moments.size(); ++k)
      moments[k] += std::pow(z, static_cast<double>(k)) / kCount;
    neighbors += z * before / kCount;
    beyond_three += std::abs(z) > 3;
    ++sides[z > 0 ? 1 : 0];
    before = z;
  }
  const double sigma =
      1 / std::sqrt(kCount);  // the k-th moment's estimate has variance (E z^2k - (E z^k)^2) / count
  EXPECT_NEAR(moments[1], 0, 4.5 * sigma);
  EXPECT_NEAR(moments[2], 1, 4.5 * sigma * std::sqrt(2.0));
  EXPECT_NEAR(moments[3], 0, 4.5 * sigma * std::sqrt(15.0));
  EXPECT_NEAR(moments[4], 3, 4.5 * sigma * std::sqrt(96.0));
  EXPECT_NEAR(neighbors, 0, 4.5 * sigma);
  EXPECT_NEAR(beyond_three, 2699.8, 4.5 * std::sqrt(2699.8));
  EXPECT_LT(std::abs(chi_square_sigmas(sides)), kLikelySigmas);
}

}  // namespace
}  // namespace starling
