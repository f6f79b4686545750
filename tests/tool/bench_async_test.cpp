#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> small(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"bench", "async", "--bytes", "1kB", "--compute", "0.1", "--steps", "20"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Checks no times: only that every method finishes, and the output.
TEST(BenchAsyncTest, RunsEveryMethodBesideASlowRank) {
  const Folder folder;
  const ToolRun run = run_tool(small({"--rounds", "2", "-n", "3", "--json", folder.path("b.json")}));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, StartsWith("3 ranks on "));

  const json bench = json::parse(read_file(folder.path("b.json")));
  EXPECT_EQ(bench.at("rounds"), 2);
  EXPECT_EQ(bench.at("ranks"), 3);
  EXPECT_EQ(bench.at("bytes"), 1000);
  EXPECT_EQ(bench.at("slowness"), 10);
  std::vector<std::string> asynchronous;
  for (const json& one : bench.at("methods")) {
    const auto method = one.at("method").get<std::string>();
    SCOPED_TRACE(method);
    EXPECT_THAT(run.out, HasSubstr("\n" + method + " "));
    if (one.at("asynchronous").get<bool>()) asynchronous.push_back(method);
    for (const char* which : {"undisturbed", "disturbed"}) {
      ASSERT_EQ(one.at(which).size(), 2U);
      for (const json& rate : one.at(which)) EXPECT_GT(rate.get<double>(), 0);
    }
    const bool judged = one.at("asynchronous").get<bool>() && bench.at("cores").get<int>() >= 3;
    EXPECT_EQ(one.at("met").is_boolean(), judged);
  }
  EXPECT_THAT(asynchronous, testing::ElementsAre("win-put", "async-push-sum", "ad-psgd", "async-average"));
}

TEST(BenchAsyncTest, KeptIsTheMedianOfTheRoundsRatios) {
  const ToolRun run = run_tool(small({"--rounds", "3", "-m", "win-put", "--json"}));
  ASSERT_EQ(run.status, 0) << run.err;
  const json methods = run.json().at("methods");
  ASSERT_EQ(methods.size(), 1U);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < 3; ++i)
    ratios.push_back(methods[0].at("disturbed").at(i).get<double>() /
                     methods[0].at("undisturbed").at(i).get<double>());
  std::sort(ratios.begin(), ratios.end());
  EXPECT_DOUBLE_EQ(methods[0].at("kept").get<double>(), ratios[1]);
}

// A method that waits for the slow rank drops to its speed; the factor is larger than the noise of a busy
// machine.
TEST(BenchAsyncTest, SlowsDownTheLastRank) {
  const ToolRun run = run_tool({"bench", "async", "-m", "dsgd-atc", "--bytes", "1kB", "--compute", "2",
                                "--steps", "50", "--rounds", "3", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_LT(run.json().at("methods").at(0).at("kept").get<double>(), 0.5);
}

TEST(BenchAsyncTest, RefusesInOneLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"-m", "win-pot"}, "did you mean win-put?"},
      {{"-n", "4", "-t", "od-equidyn"}, "known in advance"},
      {{"-n", "4", "-t", "hierarchical(outer=ring,local=2)"}, "single neighbors"},
      {{"-m", "dadam"}, "needs Adam"},
      {{"-n", "1"}, "2"},
      {{"--steps", "9"}, "10"},
      {{"--json", "/no/such/folder/b.json"}, "cannot write /no/such/folder/b.json"}};
  for (const auto& [words, expected] : mistakes) {
    const ToolRun run = run_tool(small(words));
    EXPECT_EQ(run.status, 2) << expected;
    EXPECT_EQ(run.out, "") << expected;
    EXPECT_THAT(run.err, HasSubstr(expected));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace starling::tool
