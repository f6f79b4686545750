#include "starling/data/partition.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "base/test_name.h"
#include "data/data_files.h"
#include "starling/base/sha256.h"

namespace starling::data {
namespace {

using testing::HasSubstr;

Bytes labels_of(std::size_t count, int classes) {
  Bytes labels(count);
  for (std::size_t i = 0; i < count; ++i)
    labels[i] = static_cast<std::uint8_t>(i * 7 % static_cast<std::size_t>(classes));
  return labels;
}

// Expects every sample in exactly one shard, and shards in ascending order.
void expect_partition(const std::vector<Shard>& shards, std::size_t count) {
  std::vector<std::uint32_t> all;
  for (const Shard& shard : shards) {
    EXPECT_TRUE(std::is_sorted(shard.begin(), shard.end()));
    all.insert(all.end(), shard.begin(), shard.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<std::uint32_t> expected(count);
  std::iota(expected.begin(), expected.end(), 0U);
  EXPECT_EQ(all, expected);
}

std::pair<std::size_t, std::size_t> sizes(const std::vector<Shard>& shards) {
  std::size_t least = SIZE_MAX;
  std::size_t most = 0;
  for (const Shard& shard : shards) {
    least = std::min(least, shard.size());
    most = std::max(most, shard.size());
  }
  return {least, most};
}

std::size_t count_of(const Shard& shard, const Bytes& labels, int wanted) {
  return static_cast<std::size_t>(
      std::count_if(shard.begin(), shard.end(), [&](std::uint32_t i) { return labels[i] == wanted; }));
}

// Distance of the workers' class distributions from the overall one, between 0 (equal) and nearly 1 (one
// class each).
double heterogeneity(const std::vector<Shard>& shards, const Bytes& labels, int classes) {
  double sum = 0;
  for (const Shard& shard : shards)
    for (int c = 0; c < classes; ++c)
      sum += std::abs(static_cast<double>(count_of(shard, labels, c)) / static_cast<double>(shard.size()) -
                      1.0 / classes);
  return sum / 2 / static_cast<double>(shards.size());
}

// A digest of a whole partition, to check that it never changes.
std::string digest(const std::vector<Shard>& shards) {
  Bytes bytes;
  for (const Shard& shard : shards) {
    for (const std::uint32_t sample : shard)
      for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::uint8_t>(sample >> shift));
    bytes.push_back('|');
  }
  return sha256(bytes).substr(0, 16);
}

TEST(IidTest, EverySampleOnceAndEqualSizes) {
  for (const std::size_t count : {1u, 7u, 100u, 1001u})
    for (const Rank n : {1, 2, 7, 64}) {
      if (count < static_cast<std::size_t>(n)) continue;
      const auto shards = iid_partition(count, n, 5);
      ASSERT_EQ(shards.size(), static_cast<std::size_t>(n));
      expect_partition(shards, count);
      EXPECT_LE(sizes(shards).second - sizes(shards).first, 1u);
    }
}

TEST(IidTest, IsRandomAndAFunctionOfTheSeed) {
  EXPECT_EQ(iid_partition(1000, 4, 1), iid_partition(1000, 4, 1));
  EXPECT_NE(iid_partition(1000, 4, 1), iid_partition(1000, 4, 2));
  // The split is neither by blocks nor by stripes: about half of a worker's samples come from the first half.
  const Shard first = iid_partition(10'000, 4, 1).front();
  const auto low = static_cast<double>(std::lower_bound(first.begin(), first.end(), 5000U) - first.begin());
  EXPECT_NEAR(low, 1250, 4 * std::sqrt(2500 * 0.25));
  std::size_t stripes = 0;
  for (const std::uint32_t sample : first) stripes += sample % 4 == 0 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(stripes), 625, 4 * std::sqrt(2500 * 0.1875));
}

TEST(PartitionTest, TheSameOnEveryPlatform) {
  const Bytes labels = labels_of(6000, 10);
  EXPECT_EQ(digest(iid_partition(6000, 7, 3)), "ee100f8d3b0c1897");
  EXPECT_EQ(digest(dirichlet_partition(labels, 8, 0.1, 3)), "e446c9a27a69b18b");
  EXPECT_EQ(digest(dirichlet_partition(labels, 8, 0.1, 3, ShardSize::equal)), "0ba83b56e9643cb9");
}

class DirichletTest : public testing::TestWithParam<double> {};

TEST_P(DirichletTest, EverySampleOnceAndNoShardBelowHalf) {
  const Bytes labels = labels_of(6003, 10);
  for (const Rank n : {1, 3, 8})
    for (const std::uint64_t seed : {0u, 1u, 2u}) {
      const auto shards = dirichlet_partition(labels, n, GetParam(), seed);
      expect_partition(shards, labels.size());
      EXPECT_GE(2 * sizes(shards).first * static_cast<std::size_t>(n), labels.size());
      EXPECT_EQ(shards, dirichlet_partition(labels, n, GetParam(), seed));
      if (n > 1) {
        EXPECT_NE(shards, dirichlet_partition(labels, n, GetParam(), seed + 100));
      }
    }
}

TEST_P(DirichletTest, EqualSizesOnRequest) {
  const Bytes labels = labels_of(6003, 10);
  for (const Rank n : {1, 8, 17, 100}) {
    const auto shards = dirichlet_partition(labels, n, GetParam(), 4, ShardSize::equal);
    expect_partition(shards, labels.size());
    EXPECT_LE(sizes(shards).second - sizes(shards).first, 1u) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Alphas, DirichletTest, testing::Values(0.001, 0.01, 0.1, 1.0, 100.0, 1e5),
                         [](const auto& test) { return test_name(fmt::format("{}", test.param)); });

TEST(DirichletPartitionTest, SmallerAlphaIsMoreHeterogeneous) {
  const Bytes labels = labels_of(20'000, 10);
  for (const ShardSize size : {ShardSize::at_least_half, ShardSize::equal}) {
    const auto spread = [&](double alpha) {
      double sum = 0;
      for (std::uint64_t seed = 0; seed < 5; ++seed)
        sum += heterogeneity(dirichlet_partition(labels, 8, alpha, seed, size), labels, 10);
      return sum / 5;
    };
    const double even = spread(1e4);
    const double one = spread(1);
    const double tenth = spread(0.1);
    const double hundredth = spread(0.01);
    EXPECT_LT(even, 0.03);
    EXPECT_GT(one, even + 0.15);
    EXPECT_GT(tenth, one + 0.15);
    EXPECT_GT(hundredth, tenth + 0.05);
    EXPECT_GT(hundredth, 0.75);
  }
}

// The first class is dealt before any worker is full, so its shares are the Dirichlet draw itself: mean 1/n,
// variance (n - 1) / (n^2 (n alpha + 1)).
TEST(DirichletPartitionTest, SharesHaveTheVarianceOfTheDistribution) {
  const Bytes labels = labels_of(10'000, 10);
  for (const double alpha : {0.3, 1.0, 3.0}) {
    constexpr Rank kWorkers = 4;
    constexpr int kSeeds = 400;
    double squares = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
      for (const Shard& shard : dirichlet_partition(labels, kWorkers, alpha, seed, ShardSize::equal)) {
        const double share = static_cast<double>(count_of(shard, labels, 0)) / 1000 - 0.25;
        squares += share * share;
      }
    const double variance = squares / (kSeeds * kWorkers);
    const double expected = 3.0 / (16 * (kWorkers * alpha + 1));
    EXPECT_NEAR(variance / expected, 1, 0.15) << alpha;
  }
}

TEST(DirichletPartitionTest, ClassesAreShuffledBeforeTheyAreCut) {
  const Bytes labels(10'000, 0);
  const Shard first = dirichlet_partition(labels, 2, 1e5, 1).front();
  const auto low = static_cast<double>(std::lower_bound(first.begin(), first.end(), 5000U) - first.begin());
  EXPECT_NEAR(low / static_cast<double>(first.size()), 0.5, 0.05);
}

// Workers form groups of at most ten, which share ten classes; a small alpha then works for any number of
// workers and any seed.
TEST(DirichletPartitionTest, MoreWorkersThanClassesShareClassesInGroups) {
  const Bytes labels = labels_of(6003, 10);
  for (const double alpha : {0.001, 0.01, 0.1, 1.0})
    for (const Rank n : {11, 16, 20, 40, 64})
      for (std::uint64_t seed = 0; seed < (n == 16 ? 40 : 6); ++seed) {
        const auto shards = dirichlet_partition(labels, n, alpha, seed);
        expect_partition(shards, labels.size());
        // Half of the group's average, since the group's part of each class is rounded down.
        EXPECT_GE(2 * (sizes(shards).first + 10) * static_cast<std::size_t>(n), labels.size())
            << alpha << ", " << n << " workers, seed " << seed;
        EXPECT_EQ(shards, dirichlet_partition(labels, n, alpha, seed));
      }
}

TEST(DirichletPartitionTest, SmallAlphasStayHeterogeneousInGroups) {
  const Bytes labels = labels_of(20'000, 10);
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    sum += heterogeneity(dirichlet_partition(labels, 16, 0.01, seed), labels, 10);
  EXPECT_GT(sum / 5, 0.75);
}

TEST(DirichletPartitionTest, ReportsThatNoDrawFits) {
  Bytes labels(1000, 0);  // class 0 has 91 % of the samples; the other nine are too small for any worker
  for (std::size_t i = 0; i < 90; ++i) labels[i] = static_cast<std::uint8_t>(1 + i % 9);
  EXPECT_THAT(message_of([&] { dirichlet_partition(labels, 10, 0.001, 1); }),
              testing::AllOf(HasSubstr("dirichlet(alpha=0.001)"), HasSubstr("10 classes over 10 workers"),
                             HasSubstr("equal=yes")));
}

TEST(PartitionTest, WrongArgumentsAreRefused) {
  EXPECT_EQ(message_of([] { iid_partition(5, 8, 0); }), "cannot partition 5 samples among 8 workers");
  EXPECT_EQ(message_of([] { iid_partition(5, 0, 0); }),
            "the number of workers must be at least 1, not n = 0");
  const Bytes labels = labels_of(100, 10);
  EXPECT_EQ(message_of([&] { dirichlet_partition(labels, 101, 1, 0); }),
            "cannot partition 100 samples among 101 workers");
  for (const double alpha : {0.0, -1.0, 1e9, std::nan("")})
    EXPECT_THAT(message_of([&] { dirichlet_partition(labels, 4, alpha, 0); }),
                HasSubstr("expected 0.0001 to 1000000"));
}

TEST(PartitionGrammarTest, NamesMeanTheFunctions) {
  const Bytes labels = labels_of(600, 10);
  EXPECT_EQ(make_partition("iid", labels, 4, 9), iid_partition(600, 4, 9));
  EXPECT_EQ(make_partition("iid(seed=3)", labels, 4, 9), iid_partition(600, 4, 3));
  EXPECT_EQ(make_partition("dirichlet(alpha=0.5)", labels, 4, 9), dirichlet_partition(labels, 4, 0.5, 9));
  EXPECT_EQ(make_partition("dirichlet(0.5, yes, 2)", labels, 4, 9),
            dirichlet_partition(labels, 4, 0.5, 2, ShardSize::equal));
  EXPECT_EQ(partition_name("dirichlet( alpha=0.5 )", 9), "dirichlet(alpha=0.5,seed=9)");
  EXPECT_EQ(partition_name("iid(3)", 9), "iid(3)");
}

TEST(PartitionGrammarTest, MistakesAreNamed) {
  const Bytes labels = labels_of(600, 10);
  const auto refusal = [&](const std::string& text) {
    return message_of([&] { make_partition(text, labels, 4, 0); });
  };
  EXPECT_EQ(refusal("even"), "unknown partition 'even'; valid are iid, contiguous, dirichlet");
  EXPECT_THAT(refusal("dirichlet"), HasSubstr("dirichlet needs alpha="));
  EXPECT_THAT(refusal("dirichlet(beta=1)"), HasSubstr("dirichlet has no parameter 'beta'"));
  EXPECT_EQ(refusal("dirichlet(alpha=0)"),
            "dirichlet: alpha=0 is not valid; expected a number from 0.0001 to 1000000");
  EXPECT_THAT(refusal("dirichlet(alpha=1,equal=maybe)"), HasSubstr("expected one of yes, no"));
  for (const char* wrong : {"dirichlet(alpha=0)", "dirichlet(alpha=1,equal=maybe)"})
    EXPECT_EQ(message_of([&] { canonical_partition(wrong, 0); }), refusal(wrong));
  EXPECT_THAT(refusal("iid("), HasSubstr("cannot read \"iid(\""));
  EXPECT_THAT(refusal("[iid]"), HasSubstr("unknown partition '[iid]'"));
}

TEST(ContiguousTest, PiecesInOrder) {
  const auto shards = contiguous_partition(11, 4);
  EXPECT_EQ(shards, (std::vector<Shard>{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10}}));
  EXPECT_EQ(make_partition("contiguous", labels_of(11, 3), 4, 5), shards);
  EXPECT_EQ(partition_name("contiguous", 5), "contiguous");
  EXPECT_THAT(message_of([] { make_partition("contiguous(seed=1)", 11, 4, 5); }), HasSubstr("it takes none"));
  EXPECT_THAT(message_of([] { contiguous_partition(3, 4); }), HasSubstr("among 4 workers"));
}

TEST(PartitionTest, SamplesWithoutLabels) {
  EXPECT_EQ(make_partition("iid", 50, 4, 7), iid_partition(50, 4, 7));
  EXPECT_EQ(message_of([] { make_partition("dirichlet(alpha=1)", 50, 4, 7); }),
            "dirichlet splits by class, and these samples have none; valid are iid, contiguous");
}

}  // namespace
}  // namespace starling::data
