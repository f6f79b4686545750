#include "starling/data/registry.h"

#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.h"
#include "starling/base/error.h"

namespace starling::data {
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

TEST(DataFolderTest, WithoutAFolderTheErrorNamesTheVariable) {
  const Variable home("HOME", std::nullopt);
  const Variable cache("XDG_CACHE_HOME", std::nullopt);
  const Variable own("STARLING_DATA", "");
  EXPECT_THAT(message_of([] { data_folder("mnist"); }), HasSubstr("set STARLING_DATA to a folder"));
}

TEST(DataRegistryTest, FindsByName) {
  EXPECT_EQ(find_data_source("mnist").name, "mnist");
  EXPECT_EQ(find_data_source("synthetic(seed=2)").name, "synthetic");
  EXPECT_EQ(
      message_of([] { find_data_source("minst"); }),
      "unknown data set 'minst' (did you mean mnist?); valid are mnist, fashion-mnist, cifar10, synthetic");
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

TEST(FashionMnistTest, SaysHowToGetIt) {
  const DataFolder folder;
  const Variable own("STARLING_DATA", folder.path().string());
  EXPECT_THAT(message_of([] { load("fashion-mnist", Split::train); }),
              testing::AllOf(HasSubstr((folder.path() / "fashion-mnist").string()),
                             HasSubstr("train-images-idx3-ubyte"),
                             HasSubstr("`starling data fashion-mnist` fetches it")));
}

// Fetched data must have its documented digests, sizes, classes, mean and deviation.
class RealData : public testing::TestWithParam<std::string> {};

// Damaged or incomplete files count as present.
bool has_files(const std::filesystem::path& folder) {
  std::error_code missing;
  return !std::filesystem::is_empty(folder, missing) && !missing;
}

TEST(RealDataFiles, AreAbsentOnlyWhereTheFolderIsEmpty) {
  const DataFolder folder;
  EXPECT_FALSE(has_files(folder.path() / "nothing"));
  std::filesystem::create_directories(folder.path() / "mnist");
  EXPECT_FALSE(has_files(folder.path() / "mnist"));
  std::ofstream(folder.path() / "mnist" / "t10k-images-idx3-ubyte") << "damaged";
  EXPECT_TRUE(has_files(folder.path() / "mnist"));
}

TEST_P(RealData, WhereItIsHere) {
  const DataSource& source = find_data_source(GetParam());
  if (!has_files(data_folder(GetParam()))) GTEST_SKIP() << "not in " << data_folder(GetParam());
  for (const DataFile& file : source.recipe->files)
    EXPECT_EQ(state_of(file, data_folder(GetParam())), FileState::good) << file.name;
  const Dataset train = load(GetParam(), Split::train);
  EXPECT_THAT(source.summary, HasSubstr(std::to_string(train.size()) + " to train"));
  EXPECT_EQ(load(GetParam(), Split::test).size(), 10'000u);
  if (GetParam() == "mnist") {
    EXPECT_THAT(count_classes(train.labels, 10),
                testing::ElementsAre(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949));
  } else {
    EXPECT_THAT(count_classes(train.labels, 10), testing::Each(train.size() / 10));
  }
  const std::size_t plane = train.shape.height * train.shape.width;
  for (std::size_t channel = 0; channel < train.shape.channels; ++channel) {
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < train.size(); ++i)
      for (const std::uint8_t pixel : train.image(i).subspan(channel * plane, plane)) {
        sum += pixel / 255.0;
        squares += pixel / 255.0 * pixel / 255.0;
      }
    const auto count = static_cast<double>(train.size() * plane);
    EXPECT_NEAR(sum / count, train.mean[channel], 1e-4);
    EXPECT_NEAR(std::sqrt(squares / count - sum / count * sum / count), train.deviation[channel], 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealData, testing::Values("mnist", "fashion-mnist", "cifar10"),
                         [](const auto& set) {
                           std::string name = set.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace starling::data
