#include "starling/data/synthetic.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>

#include "data/data_files.h"
#include "starling/base/sha256.h"

namespace starling::data {
namespace {

TEST(SyntheticTest, TheSameBytesOnEveryPlatform) {
  const Dataset train = make_synthetic(Split::train, {.seed = 1, .train = 100, .test = 10});
  const Dataset test = make_synthetic(Split::test, {.seed = 1, .train = 100, .test = 100});
  EXPECT_EQ(sha256(train.images).substr(0, 16), "95fdf8d5015502ee");
  EXPECT_EQ(sha256(test.images).substr(0, 16), "92907175f5d0e6c5");
}

TEST(SyntheticTest, LooksLikeADataSet) {
  const Dataset data = make_synthetic(Split::train);
  EXPECT_EQ(data.name, "synthetic");
  EXPECT_EQ(data.size(), 4000u);
  EXPECT_EQ(data.shape, (ImageShape{1, 28, 28}));
  EXPECT_NO_THROW(data.check());
  for (const std::size_t count : count_classes(data.labels, 10))
    EXPECT_NEAR(static_cast<double>(count), 400, 80);
  double sum = 0;
  double squares = 0;
  for (const std::uint8_t pixel : data.images) {
    sum += pixel / 255.0;
    squares += pixel / 255.0 * pixel / 255.0;
  }
  const auto count = static_cast<double>(data.images.size());
  EXPECT_NEAR(sum / count, data.mean[0], 0.02);
  EXPECT_NEAR(std::sqrt(squares / count - sum / count * sum / count), data.deviation[0], 0.02);
}

TEST(SyntheticTest, SplitsAreDisjointAndSeedsMatter) {
  std::set<std::string> seen;
  const auto add = [&](const Dataset& data) {
    for (std::size_t i = 0; i < data.size(); ++i) seen.emplace(data.image(i).begin(), data.image(i).end());
  };
  add(make_synthetic(Split::train, {.seed = 1, .train = 500, .test = 500}));
  add(make_synthetic(Split::test, {.seed = 1, .train = 500, .test = 500}));
  add(make_synthetic(Split::train, {.seed = 2, .train = 500, .test = 500}));
  EXPECT_EQ(seen.size(), 1500u);
}

// A longer split begins with the images of a shorter one.
TEST(SyntheticTest, AnImageDoesNotDependOnHowManyThereAre) {
  const Dataset few = make_synthetic(Split::train, {.seed = 1, .train = 10, .test = 1});
  const Dataset many = make_synthetic(Split::train, {.seed = 1, .train = 50, .test = 1});
  EXPECT_TRUE(std::equal(few.images.begin(), few.images.end(), many.images.begin()));
}

TEST(SyntheticTest, TheGrammarSetsItsSizes) {
  EXPECT_EQ(load("synthetic(train=30, test=20)", Split::train).size(), 30u);
  EXPECT_EQ(load("synthetic(train=30, test=20)", Split::test).size(), 20u);
  EXPECT_EQ(load("synthetic(seed=5, train=30)", Split::train).images,
            make_synthetic(Split::train, {.seed = 5, .train = 30, .test = 1}).images);
  EXPECT_THAT(message_of([] { load("synthetic(train=0)", Split::train); }),
              testing::HasSubstr("synthetic: train=0 is not valid; expected a whole number from 1"));
}

TEST(SyntheticTest, HasTheShapeOfCifar10IfAsked) {
  const Dataset data = load("synthetic(channels=3, size=32, train=30)", Split::train);
  EXPECT_EQ(data.shape, (ImageShape{3, 32, 32}));
  EXPECT_NO_THROW(data.check());
  const auto image = data.image(0);
  EXPECT_FALSE(std::equal(image.begin(), image.begin() + 1024, image.begin() + 1024));
  EXPECT_EQ(load("synthetic(size=28, channels=1, train=30)", Split::train).images,
            load("synthetic(train=30)", Split::train).images);
  EXPECT_THAT(message_of([] { load("synthetic(channels=2)", Split::train); }),
              testing::HasSubstr("channels=2 is not valid; images have 1 (gray) or 3 (colored)"));
  EXPECT_THAT(message_of([] { load("synthetic(size=7)", Split::train); }),
              testing::HasSubstr("size=7 is not valid; expected a whole number from 8"));
}

double distance(std::span<const std::uint8_t> left, const std::vector<double>& right) {
  double sum = 0;
  for (std::size_t i = 0; i < right.size(); ++i) sum += (left[i] - right[i]) * (left[i] - right[i]);
  return sum;
}

// Returns the label of the nearest of `places`.
std::uint8_t nearest(std::span<const std::uint8_t> image, const std::vector<std::vector<double>>& places,
                     const std::vector<std::uint8_t>& labels) {
  std::size_t best = 0;
  double least = INFINITY;
  for (std::size_t i = 0; i < places.size(); ++i)
    if (const double d = distance(image, places[i]); d < least) {
      least = d;
      best = i;
    }
  return labels[best];
}

// Patterns are shifted, so the mean image of a class predicts poorly; the nearest training image predicts
// well.
TEST(SyntheticTest, CanBeLearnedButNotByMeansOfClasses) {
  const Dataset train = make_synthetic(Split::train);
  const Dataset test = make_synthetic(Split::test, {.seed = 1, .train = 1, .test = 300});
  std::vector<std::vector<double>> images;
  std::vector<std::vector<double>> means(10, std::vector<double>(784, 0));
  const auto counts = count_classes(train.labels, 10);
  for (std::size_t i = 0; i < train.size(); ++i) {
    images.emplace_back(train.image(i).begin(), train.image(i).end());
    for (std::size_t p = 0; p < 784; ++p)
      means[train.labels[i]][p] += images.back()[p] / static_cast<double>(counts[train.labels[i]]);
  }
  const std::vector<std::uint8_t> classes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  double by_mean = 0;
  double by_neighbor = 0;
  for (std::size_t i = 0; i < test.size(); ++i) {
    by_mean += nearest(test.image(i), means, classes) == test.labels[i] ? 1 : 0;
    by_neighbor += nearest(test.image(i), images, train.labels) == test.labels[i] ? 1 : 0;
  }
  RecordProperty("by_mean", std::to_string(by_mean / 300));
  RecordProperty("by_neighbor", std::to_string(by_neighbor / 300));
  EXPECT_GT(by_neighbor / 300, 0.9);
  EXPECT_LT(by_mean / 300, 0.8);
}

}  // namespace
}  // namespace starling::data
