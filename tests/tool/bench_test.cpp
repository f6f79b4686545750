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

// Checks no times: only that every installed contender finishes.
TEST(BenchCommTest, QuickRunsEveryCase) {
  const Folder folder;
  const ToolRun run =
      run_tool({"bench", "comm", "--quick", "--rounds", "1", "--json", folder.path("b.json")});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, StartsWith("Communication on "));
  for (const std::string row : {"one-peer ", "exponential ", "allreduce ", "waiting ", "start-up "})
    EXPECT_THAT(run.out, HasSubstr("\n" + row)) << row;

  const json bench = json::parse(read_file(folder.path("b.json")));
  EXPECT_EQ(bench.at("rounds"), 1);
  EXPECT_EQ(bench.at("quick"), true);
  ASSERT_EQ(bench.at("cases").size(), 21u);
  for (const json& one : bench.at("cases")) {
    SCOPED_TRACE(one.at("label").get<std::string>());
    EXPECT_EQ(one.at("failed"), false) << bench.at("notes");
    EXPECT_EQ(one.at("met"), nullptr);  // too little data
    EXPECT_NE(one.at("bar"), "");
    for (const auto& [contender, values] : one.at("values").items()) {
      EXPECT_LE(values.size(), 1u) << contender;
      for (const json& value : values) EXPECT_GT(value.get<double>(), 0) << contender;
    }
    if (one.at("ours") == "starling") {
      EXPECT_EQ(one.at("values").at("starling").size(), 1u);
    }
  }
}

TEST(BenchCommTest, ComputesRatiosFromTheValues) {
  const ToolRun run =
      run_tool({"bench", "comm", "--quick", "--rounds", "3", "--only", "one-peer n=2 16kB", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const json cases = run.json().at("cases");
  ASSERT_EQ(cases.size(), 1u);
  const auto ours = cases[0].at("values").at("starling").get<std::vector<double>>();
  const auto ceiling = cases[0].at("values").at("ceiling").get<std::vector<double>>();
  ASSERT_EQ(ours.size(), 3u);
  ASSERT_EQ(ceiling.size(), 3u);
  std::vector<double> shares;
  for (std::size_t i = 0; i < 3; ++i) shares.push_back(ceiling[i] / ours[i]);
  std::sort(shares.begin(), shares.end());
  EXPECT_DOUBLE_EQ(cases[0].at("of_ceiling").get<double>(), shares[1]);
  EXPECT_EQ(cases[0].at("times_gloo"), nullptr);  // gloo does not take part in this case
}

TEST(BenchCommTest, ListsTheCases) {
  const ToolRun run = run_tool({"bench", "comm", "--list", "--only", "allreduce"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("\nallreduce n=2 100MB  1x MPI, 1.3x gloo\n"));
  EXPECT_EQ(run.out.find("one-peer"), std::string::npos);
}

TEST(BenchCommTest, StrictFailsOnAMissedBar) {
  const ToolRun run =
      run_tool({"bench", "comm", "--rounds", "1", "--only", "start-up", "--strict", "--json"});
  const json one = run.json().at("cases").at(0);
  ASSERT_TRUE(one.at("met").is_boolean());
  EXPECT_EQ(one.at("met").get<bool>(), one.at("values").at("starling").at(0).get<double>() < 0.5);
  EXPECT_EQ(run.status, one.at("met").get<bool>() ? 0 : 1);
}

TEST(BenchCommTest, RefusesInOneLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"--rounds", "0"}, "1000"},
      {{"--only", "pigeon"}, "no case contains 'pigeon'"},
      {{"--quick", "--strict"}, "--strict needs full measurements"},
      {{"--quick", "--json", "/no/such/folder/b.json"}, "cannot write /no/such/folder/b.json"},
      {{"--cases", "2"}, "--cases"},
      {{"surplus"}, "surplus"}};
  for (const auto& [words, expected] : mistakes) {
    std::vector<std::string> arguments = {"bench", "comm"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const ToolRun run = run_tool(arguments);
    EXPECT_EQ(run.status, 2) << expected;
    EXPECT_EQ(run.out, "") << expected;
    EXPECT_THAT(run.err, StartsWith("starling: "));
    EXPECT_THAT(run.err, HasSubstr(expected));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

}  // namespace
}  // namespace starling::tool
