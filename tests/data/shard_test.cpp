#include "starling/data/shard.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <set>

#include "data/data_files.h"
#include "starling/data/partition.h"

namespace starling::data {
namespace {

std::vector<std::uint32_t> whole_epoch(ShardSampler& sampler, std::int64_t epoch, std::size_t batch) {
  std::vector<std::uint32_t> order;
  sampler.start(epoch);
  for (auto some = sampler.next(batch); !some.empty(); some = sampler.next(batch))
    order.insert(order.end(), some.begin(), some.end());
  return order;
}

Shard every_third(std::size_t count) {
  Shard shard(count);
  for (std::size_t i = 0; i < count; ++i) shard[i] = static_cast<std::uint32_t>(3 * i);
  return shard;
}

TEST(ShuffleTest, AllOrdersAreAboutEquallyLikely) {
  std::map<std::vector<std::uint32_t>, int> seen;
  for (std::uint64_t i = 0; i < 24'000; ++i) {
    std::vector<std::uint32_t> samples = {0, 1, 2, 3};
    Random random(1, i, stream::kEpochOrder);
    shuffle(samples, random);
    ++seen[samples];
  }
  EXPECT_EQ(seen.size(), 24u);
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, 1000, 150);
}

TEST(ShardSamplerTest, EveryEpochHasEverySampleInAnotherOrder) {
  ShardSampler sampler(every_third(101), 2, 7);
  EXPECT_EQ(sampler.batches(10), 11u);
  std::set<std::vector<std::uint32_t>> orders;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    auto order = whole_epoch(sampler, epoch, 10);
    EXPECT_EQ(sampler.epoch(), epoch);
    EXPECT_EQ(sampler.position(), 101u);
    orders.insert(order);
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, every_third(101));
  }
  EXPECT_EQ(orders.size(), 5u);
}

TEST(ShardSamplerTest, TheOrderDependsOnSeedEpochAndRankOnly) {
  ShardSampler sampler(every_third(50), 2, 7);
  const auto order = whole_epoch(sampler, 3, 8);
  ShardSampler fresh(every_third(50), 2, 7);
  EXPECT_EQ(whole_epoch(fresh, 3, 50), order);
  ShardSampler other_rank(every_third(50), 3, 7);
  EXPECT_NE(whole_epoch(other_rank, 3, 8), order);
  ShardSampler other_seed(every_third(50), 2, 8);
  EXPECT_NE(whole_epoch(other_seed, 3, 8), order);
}

TEST(ShardSamplerTest, ContinuesFromAPosition) {
  ShardSampler sampler(every_third(50), 1, 7);
  const auto order = whole_epoch(sampler, 4, 8);
  ShardSampler resumed(every_third(50), 1, 7);
  resumed.start(4, 24);
  const auto batch = resumed.next(8);
  EXPECT_TRUE(std::equal(batch.begin(), batch.end(), order.begin() + 24, order.begin() + 32));
  EXPECT_EQ(resumed.position(), 32u);
  EXPECT_EQ(resumed.next(100).size(), 18u);
  EXPECT_TRUE(resumed.next(8).empty());
}

TEST(ShardSamplerTest, NothingBeforeTheFirstStartAndNewShardsFromTheNext) {
  ShardSampler sampler(every_third(10), 0, 1);
  EXPECT_TRUE(sampler.next(4).empty());
  sampler.start(0);
  EXPECT_EQ(sampler.next(4).size(), 4u);
  sampler.replace(every_third(3));
  EXPECT_EQ(sampler.next(100).size(), 6u);
  auto order = whole_epoch(sampler, 1, 2);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, every_third(3));
}

TEST(ShardSamplerTest, WrongArgumentsAreRefused) {
  ShardSampler sampler(every_third(10), 0, 1);
  EXPECT_EQ(message_of([&] { sampler.start(-1); }), "epoch -1 is not valid; expected 0 to 2147483647");
  EXPECT_EQ(message_of([&] { sampler.start(0, 11); }),
            "position 11 is behind the end of a shard of 10 samples");
  EXPECT_EQ(message_of([&] { (void)sampler.batches(0); }), "a batch has at least one sample, not 0");
  EXPECT_EQ(message_of([] { ShardSampler({}, -1, 0); }), "rank -1 is not a rank: they count from 0");
}

TEST(ReshardTest, EveryOrphanGoesToExactlyOneSurvivor) {
  const auto shards = iid_partition(1003, 6, 2);
  const std::vector<Rank> dead = {4, 1};
  const auto resharded = reshard(shards, dead, 5);
  ASSERT_EQ(resharded.size(), shards.size());
  std::vector<std::uint32_t> all;
  std::size_t least = SIZE_MAX;
  std::size_t most = 0;
  for (std::size_t rank = 0; rank < resharded.size(); ++rank) {
    all.insert(all.end(), resharded[rank].begin(), resharded[rank].end());
    if (rank == 1 || rank == 4) {
      EXPECT_TRUE(resharded[rank].empty());
      continue;
    }
    EXPECT_TRUE(std::is_sorted(resharded[rank].begin(), resharded[rank].end()));
    // Each rank keeps its own samples.
    EXPECT_TRUE(std::includes(resharded[rank].begin(), resharded[rank].end(), shards[rank].begin(),
                              shards[rank].end()));
    const std::size_t more = resharded[rank].size() - shards[rank].size();
    least = std::min(least, more);
    most = std::max(most, more);
  }
  EXPECT_LE(most - least, 1u);
  std::sort(all.begin(), all.end());
  std::vector<std::uint32_t> expected(1003);
  std::iota(expected.begin(), expected.end(), 0U);
  EXPECT_EQ(all, expected);
}

TEST(ReshardTest, IsAFunctionOfItsArguments) {
  const auto shards = iid_partition(500, 5, 2);
  const std::vector<Rank> dead = {3, 0};
  const std::vector<Rank> reversed = {0, 3};
  EXPECT_EQ(reshard(shards, dead, 1), reshard(shards, reversed, 1));
  EXPECT_NE(reshard(shards, dead, 1), reshard(shards, dead, 2));
  EXPECT_EQ(reshard(shards, {}), shards);
}

// Labels that alternate must not all end at one survivor.
TEST(ReshardTest, AssignsAtRandom) {
  std::vector<Shard> shards(3);
  shards[2].resize(3000);
  std::iota(shards[2].begin(), shards[2].end(), 0U);
  const std::vector<Rank> dead = {2};
  const auto resharded = reshard(shards, dead);
  const auto even = std::count_if(resharded[0].begin(), resharded[0].end(),
                                  [](std::uint32_t sample) { return sample % 2 == 0; });
  EXPECT_NEAR(static_cast<double>(even), 750, 80);
}

// Ranks that died earlier get nothing when another rank dies.
TEST(ReshardTest, SeveralFailuresOneAfterAnother) {
  auto shards = iid_partition(100, 4, 2);
  shards = reshard(std::move(shards), std::vector<Rank>{2});
  shards = reshard(std::move(shards), std::vector<Rank>{2, 0});
  EXPECT_TRUE(shards[0].empty() && shards[2].empty());
  EXPECT_EQ(shards[1].size() + shards[3].size(), 100u);
  shards = reshard(std::move(shards), std::vector<Rank>{0, 2, 3});
  EXPECT_EQ(shards[1].size(), 100u);
}

TEST(ReshardTest, WrongArgumentsAreRefused) {
  const std::vector<Shard> shards(3, Shard{1});
  const auto refusal = [&](const std::vector<Rank>& dead) {
    return message_of([&] { reshard(shards, dead); });
  };
  EXPECT_EQ(refusal({3}), "rank 3 is not one of the 3 ranks 0..2");
  EXPECT_EQ(refusal({-1}), "rank -1 is not one of the 3 ranks 0..2");
  EXPECT_EQ(refusal({1, 1}), "rank 1 is named twice among the dead");
  EXPECT_EQ(refusal({0, 1, 2}), "all 3 ranks are dead: no rank is left to take their samples");
}

}  // namespace
}  // namespace starling::data
