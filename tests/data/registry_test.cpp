#include "starling/data/registry.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.h"
#include "starling/base/error.h"

namespace starling {
namespace {

using testing::HasSubstr;

TEST(DataFolderTest, FollowsTheEnvironment) {
  const Variable home("HOME", "/home/me");
  const Variable cache("XDG_CACHE_HOME", std::nullopt);
  const Variable own("STARLING_DATA", std::nullopt);
  EXPECT_EQ(data_folder("mnist"), "/home/me/.cache/starling/mnist");
  const Variable relative("XDG_CACHE_HOME", "somewhere");
  EXPECT_EQ(data_folder("mnist"), "/home/me/.cache/starling/mnist");
  const Variable absolute("XDG_CACHE_HOME", "/cache");
  EXPECT_EQ(data_folder("mnist"), "/cache/starling/mnist");
  const Variable ours("STARLING_DATA", "data");
  EXPECT_EQ(data_folder("mnist"), "data/mnist");
}

TEST(DataFolderTest, WithoutAnyPlaceItSaysWhatToSet) {
  const Variable home("HOME", std::nullopt);
  const Variable cache("XDG_CACHE_HOME", std::nullopt);
  const Variable own("STARLING_DATA", "");
  EXPECT_THAT(message_of([] { data_folder("mnist"); }), HasSubstr("set STARLING_DATA to a folder"));
}

TEST(DataRegistryTest, FindsByName) {
  EXPECT_EQ(find_data_source("mnist").name, "mnist");
  EXPECT_EQ(find_data_source("synthetic(seed=2)").name, "synthetic");
  EXPECT_EQ(message_of([] { find_data_source("minst"); }),
            "unknown data set 'minst'; valid are mnist, synthetic");
  EXPECT_THAT(message_of([] { load("mnist(seed=1)", Split::train, "/"); }),
              HasSubstr("mnist has no parameter 'seed'"));
}

TEST(DataRegistryTest, GeneratedDataHasNoFiles) {
  EXPECT_EQ(message_of([] { load("synthetic", Split::train, "/somewhere"); }),
            "synthetic is generated and has no folder");
  EXPECT_EQ(message_of([] { fetch(find_data_source("synthetic")); }),
            "synthetic is generated and has no files");
}

TEST(DataRegistryTest, EveryRecipeIsComplete) {
  for (const DataSource& source : data_sources()) {
    if (!source.recipe) continue;
    EXPECT_FALSE(source.recipe->files.empty()) << source.name;
    for (const DataFile& file : source.recipe->files)
      EXPECT_THAT(file.sha256, testing::MatchesRegex("[0-9a-f]{64}")) << file.name;
    for (const std::string& mirror : source.recipe->mirrors)
      EXPECT_TRUE(mirror.starts_with("https://") && mirror.ends_with("/")) << mirror;
  }
}

TEST(MnistTest, SaysHowToGetIt) {
  const DataFolder folder;
  const Variable own("STARLING_DATA", folder.path().string());
  EXPECT_THAT(message_of([] { load("mnist", Split::test); }),
              testing::AllOf(HasSubstr((folder.path() / "mnist").string() + " has no t10k-images-idx3-ubyte"),
                             HasSubstr("`starling data mnist` fetches it")));
}

TEST(MnistTest, TheRealOneWhereItIsHere) {
  try {
    load("mnist", Split::test);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  for (const DataFile& file : find_data_source("mnist").recipe->files)
    EXPECT_EQ(state_of(file, data_folder("mnist")), FileState::good) << file.name;
  const Dataset train = load("mnist", Split::train);
  EXPECT_EQ(train.size(), 60'000u);
  EXPECT_EQ(load("mnist", Split::test).size(), 10'000u);
  EXPECT_THAT(count_classes(train.labels, 10),
              testing::ElementsAre(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949));
  double sum = 0;
  double squares = 0;
  for (const std::uint8_t pixel : train.images) {
    sum += pixel / 255.0;
    squares += pixel / 255.0 * pixel / 255.0;
  }
  const auto count = static_cast<double>(train.images.size());
  EXPECT_NEAR(sum / count, train.mean[0], 1e-4);
  EXPECT_NEAR(std::sqrt(squares / count - sum / count * sum / count), train.deviation[0], 1e-4);
}

}  // namespace
}  // namespace starling
