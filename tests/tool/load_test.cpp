#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string library(const std::string& name) {
  return std::string(STARLING_TEST_EXTENSIONS) + "/lib" + name + ".so";
}

TEST(LoadTest, RegistersEveryKindByName) {
  const ToolRun topo = run_tool({"topo", "ladder", "-n", "8", "--json", "--load", STARLING_LADDER});
  ASSERT_EQ(topo.status, 0) << topo.err;
  EXPECT_EQ(topo.json().at("schedule"), "ladder");
  const ToolRun compare =
      run_tool({"compare", "-n", "8", "ring", "ladder(weight=0.3)", "--load", STARLING_LADDER});
  EXPECT_EQ(compare.status, 0) << compare.err;
  EXPECT_THAT(compare.out, HasSubstr("ladder(weight=0.3)"));
  const ToolRun consensus =
      run_tool({"simulate", "consensus", "ladder", "-n", "8", "--load", STARLING_LADDER});
  EXPECT_EQ(consensus.status, 0) << consensus.err;
  const ToolRun train =
      run_tool({"simulate", "train", "-n", "8", "--steps", "300", "-m", "rested", "choco(cut)", "-t",
                "ladder", "--problem", "bowls", "--dim", "3", "--json", "--load", STARLING_LADDER});
  ASSERT_EQ(train.status, 0) << train.err;
  EXPECT_THAT(train.out,
              AllOf(HasSubstr("\"rested\""), HasSubstr("\"choco(cut)\""), HasSubstr("\"ladder\"")));
  const ToolRun method = run_tool({"methods", "rested", "--load", STARLING_LADDER});
  EXPECT_EQ(method.status, 0) << method.err;
  EXPECT_THAT(method.out, AllOf(HasSubstr("every=2"), HasSubstr("static symmetric weights")));
}

TEST(LoadTest, TakesLibrariesFromEnvironmentAndOption) {
  setenv("STARLING_LOAD", STARLING_LADDER, 1);
  const ToolRun without = run_tool({"topo", "ladder", "-n", "8"});
  const ToolRun with = run_tool({"topo", "ladder", "-n", "8", "--load", STARLING_LADDER});
  unsetenv("STARLING_LOAD");
  EXPECT_EQ(without.status, 0) << without.err;
  EXPECT_EQ(with.status, 0) << with.err;
  EXPECT_EQ(run_tool({"topo", "ladder", "-n", "8"}).status, 2);
}

TEST(LoadTest, SaysWhatIsWrongWithALibrary) {
  const auto refusal = [](const std::string& file) {
    const ToolRun run = run_tool({"topologies", "--load", file});
    EXPECT_EQ(run.status, 2) << file;
    return run.err;
  };
  EXPECT_THAT(refusal("nowhere/libmine.so"), HasSubstr("cannot load nowhere/libmine.so: No such file"));
  EXPECT_THAT(refusal(library("other_version")),
              HasSubstr("was built against Starling 0.0.7, this program is "));
  EXPECT_THAT(refusal(library("no_extension")), HasSubstr("is not a Starling extension"));
  EXPECT_THAT(refusal(library("registers_nothing")), HasSubstr("registered nothing"));
  EXPECT_THAT(refusal(library("taken_name")), HasSubstr("a topology named 'ring' exists already"));
  Folder folder;
  EXPECT_THAT(refusal(folder.write("text.so", "not a library")), HasSubstr("cannot load "));
}

#ifdef STARLING_HAS_TORCH
TEST(LoadTest, WorkersOfATrainingLoadItToo) {
  const ToolRun run = run_tool({"train", "--data", "synthetic", "--workers", "3", "--epochs", "1", "--method",
                                "rested", "--topology", "ladder", "--load", STARLING_LADDER});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out + run.err, HasSubstr("rested"));
}
#endif

}  // namespace
}  // namespace starling::tool
