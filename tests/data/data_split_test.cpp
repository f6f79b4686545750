#include "starling/data/data_split.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "starling/base/error.h"

namespace starling::data {
namespace {

TEST(DataSplit, EverySampleGoesToOneRank) {
  for (const char* partition : {"iid", "contiguous"}) {
    std::multiset<std::uint32_t> seen;
    for (Rank r = 0; r < 4; ++r) {
      const DataSplit split({40, {}}, r, 4, {.partition = partition, .seed = 3});
      EXPECT_EQ(split.size(), 10u);
      for (const std::uint32_t sample : split.order(5)) seen.insert(sample);
    }
    EXPECT_EQ(seen.size(), 40u);
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 40u);
  }
}

TEST(DataSplit, EpochsAreReshuffledRepeatably) {
  const DataSplit split({40, {}}, 1, 4, {.seed = 3});
  EXPECT_EQ(split.order(2), DataSplit({40, {}}, 1, 4, {.seed = 3}).order(2));
  EXPECT_NE(split.order(2), split.order(3));
  auto one = split.order(2);
  auto other = split.order(3);
  std::sort(one.begin(), one.end());
  std::sort(other.begin(), other.end());
  EXPECT_EQ(one, other);
  const DataSplit plain({40, {}}, 1, 4, {.partition = "contiguous", .shuffle = false});
  EXPECT_THAT(plain.order(7), testing::ElementsAre(10, 11, 12, 13, 14, 15, 16, 17, 18, 19));
}

TEST(DataSplit, RanksWithFewerSamplesRepeatSome) {
  std::set<std::uint32_t> seen;
  for (Rank r = 0; r < 4; ++r) {
    const DataSplit split({10, {}}, r, 4);
    EXPECT_EQ(split.size(), 3u);
    const auto order = split.order(0);
    EXPECT_EQ(order.size(), 3u);
    seen.insert(order.begin(), order.end());
  }
  EXPECT_EQ(seen.size(), 10u);
  std::size_t all = 0;
  for (Rank r = 0; r < 4; ++r) all += DataSplit({10, {}}, r, 4, {.even = false}).order(0).size();
  EXPECT_EQ(all, 10u);
}

TEST(DataSplit, SplitsByClassWhereThereAreLabels) {
  std::vector<std::uint8_t> labels(400);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::uint8_t>(i % 10);
  const Samples samples{labels.size(), labels};
  std::set<std::size_t> sizes;
  for (Rank r = 0; r < 3; ++r)
    sizes.insert(DataSplit(samples, r, 3, {.partition = "dirichlet(alpha=0.5)"}).order(0).size());
  EXPECT_EQ(sizes.size(), 1u);
  EXPECT_THROW(DataSplit({400, {}}, 0, 3, {.partition = "dirichlet(alpha=0.5)"}), InvalidArgument);
}

TEST(DataSplit, RefusesInvalidSplits) {
  EXPECT_THROW(DataSplit({10, {}}, 4, 4), InvalidArgument);
  EXPECT_THROW(DataSplit({10, {}}, 0, 4, {.partition = "idd"}), InvalidArgument);
  try {
    const DataSplit split({3, {}}, 0, 4);
    FAIL() << "a rank without samples";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cannot partition 3 samples among 4 workers"));
  }
}

}  // namespace
}  // namespace starling::data
