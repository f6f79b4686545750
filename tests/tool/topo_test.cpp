#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "starling/topology/matrix.h"
#include "starling/topology/registry.h"
#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

using Matrix = std::vector<std::vector<double>>;

json topo(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"topo", "--json"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const ToolRun run = run_tool(all);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  return run.json();
}

// The text after a row's label, or "(none)".
std::string row(const ToolRun& run, const std::string& label) {
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(label + "  ")) return line.substr(line.find_first_not_of(' ', label.size()));
  return "(none)";
}

// Builds the matrix from a round's edges; checks their order and that the diagonal is present.
Matrix rebuild(const json& round, Rank n) {
  const auto size = static_cast<std::size_t>(n);
  Matrix matrix(size, std::vector<double>(size, 0.0));
  std::vector<bool> diagonal(size, false);
  std::pair<Rank, Rank> before{-1, -1};
  for (const json& edge : round.at("edges")) {
    const std::pair<Rank, Rank> at{edge.at(0).get<Rank>(), edge.at(1).get<Rank>()};
    EXPECT_LT(before, at);
    before = at;
    matrix[static_cast<std::size_t>(at.first)][static_cast<std::size_t>(at.second)] =
        edge.at(2).get<double>();
    if (at.first == at.second) diagonal[static_cast<std::size_t>(at.first)] = true;
  }
  EXPECT_THAT(diagonal, testing::Each(true));
  return matrix;
}

Matrix of_library(const std::string& text, Rank n, Step step, std::uint64_t seed = 0) {
  const SchedulePtr schedule = make_schedule(text, n, seed);
  Matrix matrix(static_cast<std::size_t>(n), std::vector<double>(static_cast<std::size_t>(n), 0.0));
  for (const Entry& entry : RoundMatrix(*schedule, step).entries())
    matrix[static_cast<std::size_t>(entry.receiver)][static_cast<std::size_t>(entry.sender)] = entry.weight;
  return matrix;
}

TEST(TopoTest, ListsEveryFamily) {
  const ToolRun run = run_tool({"topo"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.err, "");
  for (const Family& family : topology_families())
    EXPECT_THAT(run.out, HasSubstr("\n" + family.name)) << family.name;
  EXPECT_THAT(run.out, HasSubstr("center=0, weights=metropolis"));
  const json list = topo({});
  ASSERT_EQ(list.size(), topology_families().size());
  for (std::size_t i = 0; i < list.size(); ++i) EXPECT_EQ(list[i].at("name"), topology_families()[i].name);
  EXPECT_EQ(list.back().at("parameters").back().at("name"), "members");
  EXPECT_TRUE(list.back().at("parameters").back().at("default").is_null());
}

TEST(TopoTest, PrintsAnalysisAsATable) {
  const ToolRun exponential = run_tool({"topo", "exponential", "-n", "16"});
  EXPECT_EQ(exponential.status, 0);
  EXPECT_THAT(exponential.out, StartsWith("exponential on 16 ranks\n"));
  EXPECT_EQ(row(exponential, "period"), "1, static");
  EXPECT_EQ(row(exponential, "mixing"), "doubly stochastic");
  EXPECT_EQ(row(exponential, "symmetric"), "no");
  EXPECT_EQ(row(exponential, "connected"), "yes");
  EXPECT_EQ(row(exponential, "rho"), "0.6 (formula)");
  EXPECT_EQ(row(exponential, "exact average"), "no");
  EXPECT_EQ(row(exponential, "peers a step"), "4");
  EXPECT_EQ(row(exponential, "messages a step"), "64");
  const ToolRun base = run_tool({"topo", "base", "-n", "6"});
  EXPECT_EQ(row(base, "period"), "4");
  EXPECT_EQ(row(base, "exact average"), "after 4 rounds from the start of a period (seen by running it)");
  EXPECT_EQ(row(run_tool({"topo", "one-peer-exponential", "-n", "8"}), "exact average"),
            "after 3 rounds from any step (seen by running it)");
  EXPECT_EQ(row(run_tool({"topo", "random-matching", "-n", "8"}), "period"), "random: redrawn every step");
  EXPECT_THAT(row(run_tool({"topo", "random-matching", "-n", "8"}), "rho"), HasSubstr("mean-square"));
  EXPECT_THAT(row(run_tool({"topo", "star(weights=uniform)", "-n", "5"}), "mixing"), StartsWith("rows only"));
  EXPECT_THAT(row(run_tool({"topo", "star(weights=push)", "-n", "5"}), "mixing"),
              HasSubstr("needs push-sum"));
  EXPECT_EQ(row(run_tool({"topo", "star(weights=laplacian)", "-n", "5"}), "negative weights"), "yes");
  EXPECT_EQ(row(run_tool({"topo", "live(ring,members=[0,1])", "-n", "5"}), "connected"), "no");
}

// "no" would be wrong for a property that was not computed.
TEST(TopoTest, SaysWhatWasNotComputed) {
  EXPECT_EQ(row(run_tool({"topo", "base", "-n", "20000"}), "exact average"),
            "after a period (by formula, not run at this n)");
  EXPECT_EQ(row(run_tool({"topo", "periodic(ring,h=2000000000)", "-n", "16"}), "exact average"),
            "not computed at this n and period");
  EXPECT_EQ(row(run_tool({"topo", "one-peer-of(erdos-renyi)", "-n", "64"}), "period"), "too long to count");
}

TEST(TopoTest, EdgesRebuildTheMatrix) {
  for (const std::string text : {"ring", "grid(weights=uniform)", "complete", "base(k=2)",
                                 "hierarchical(outer=ring,local=2)", "od-equidyn"}) {
    const json printed = topo({text, "-n", "6"});
    EXPECT_EQ(printed.at("name"), text);
    EXPECT_EQ(printed.at("n"), 6);
    ASSERT_FALSE(printed.at("rounds").empty());
    Step step = 0;
    for (const json& round : printed.at("rounds")) {
      EXPECT_EQ(round.at("step"), step);
      const Matrix matrix = rebuild(round, 6);
      EXPECT_EQ(matrix, of_library(text, 6, step)) << text;  // 17 digits restore the same number
      for (const auto& weights : matrix)
        EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1, 1e-15);
      ++step;
    }
  }
}

TEST(TopoTest, WeightsHaveSeventeenDigits) {
  EXPECT_THAT(run_tool({"topo", "ring", "-n", "5", "--json"}).out, HasSubstr("[0, 1, 0.33333333333333331]"));
}

TEST(TopoTest, PeriodStepsAndSeed) {
  const json random = topo({"random-matching", "-n", "6"});
  EXPECT_TRUE(random.at("period").is_null());
  EXPECT_EQ(random.at("rounds").size(), 1u);
  EXPECT_EQ(random.at("schedule"), "random-matching(seed=0)");
  const json seeded = topo({"random-matching", "-n", "6", "--steps", "5", "--seed", "9"});
  EXPECT_EQ(seeded.at("schedule"), "random-matching(seed=9)");
  ASSERT_EQ(seeded.at("rounds").size(), 5u);
  EXPECT_EQ(rebuild(seeded.at("rounds")[4], 6), of_library("random-matching", 6, 4, 9));
  const json base = topo({"base", "-n", "6"});
  EXPECT_EQ(base.at("period"), 4);
  EXPECT_EQ(base.at("rounds").size(), 4u);
  EXPECT_EQ(topo({"base", "-n", "6", "--steps", "9"}).at("rounds").size(), 9u);
  EXPECT_EQ(base.at("rho"), 0);
  EXPECT_EQ(base.at("analysis").at("exact_rounds"), 4);
  EXPECT_EQ(base.at("analysis").at("exact_from_any_step"), false);
}

TEST(TopoTest, ShowsOneRankOnly) {
  for (const std::string text :
       {"base(k=2)", "od-equidyn", "ceca(k=2)", "hierarchical(outer=ring,local=2)"}) {
    const json all = topo({text, "-n", "12", "--steps", "3"});
    const json one = topo({text, "-n", "12", "--steps", "3", "--rank", "7"});
    EXPECT_EQ(one.at("rank"), 7);
    for (std::size_t t = 0; t < 3; ++t) {
      std::vector<json> mine;
      for (const json& edge : all.at("rounds")[t].at("edges"))
        if (edge.at(0) == 7) mine.push_back(edge);
      EXPECT_THAT(one.at("rounds")[t].at("edges").get<std::vector<json>>(),
                  testing::UnorderedElementsAreArray(mine))
          << text;
      const Exchange exchange = make_schedule(text, 12)->exchange(static_cast<Step>(t), 7);
      const json& told = one.at("rounds")[t].at("destinations");
      ASSERT_EQ(told.size(), exchange.destinations.size()) << text;
      for (std::size_t i = 0; i < told.size(); ++i)
        EXPECT_EQ(told[i].at(0), exchange.destinations[i].rank) << text;
    }
  }
  const ToolRun run = run_tool({"topo", "base", "-n", "6", "--rank", "1"});
  EXPECT_THAT(run.out, HasSubstr("What rank 1 does"));
  EXPECT_THAT(run.out, HasSubstr("2 (0.66667)"));
}

// A program that knows only the printed numbers must reach the average.
void expect_averages(const std::string& text, Rank n, const std::vector<Rank>& members) {
  const json printed = topo({text, "-n", std::to_string(n)});
  EXPECT_EQ(printed.at("analysis").at("mixing"), "two-block");
  std::vector<double> a;
  for (Rank i = 0; i < n; ++i) a.push_back(std::cos(3.0 * i));
  std::vector<double> b(a.size(), 0.0);
  double mean = 0;
  for (const Rank i : members) mean += a[static_cast<std::size_t>(i)] / static_cast<double>(members.size());
  for (const json& round : printed.at("rounds")) {
    const auto mixed = [&](const char* edges) {
      std::vector<double> next(a.size(), 0.0);
      for (const json& edge : round.at(edges))
        next[edge.at(0).get<std::size_t>()] +=
            edge.at(2).get<double>() * (edge.at(3) == "a" ? a : b)[edge.at(1).get<std::size_t>()];
      return next;
    };
    // Coefficients shared by all ranks must agree with the edges.
    if (round.contains("update")) {
      for (const auto& [edges, into] : {std::pair("edges", "a"), std::pair("edges_b", "b")})
        for (const json& edge : round.at(edges)) {
          const std::string from =
              edge.at(0) == edge.at(1) ? "_self" : "_from_" + edge.at(3).get<std::string>();
          EXPECT_EQ(edge.at(2), round.at("update").at(into + from)) << text;
        }
    } else {
      EXPECT_LT(members.size(), a.size()) << text << ": all ranks do the same";
    }
    const auto a_next = mixed("edges");
    b = mixed("edges_b");
    a = a_next;
  }
  for (const Rank i : members)
    EXPECT_NEAR(a[static_cast<std::size_t>(i)], mean, 1e-14) << text << " rank " << i;
}

TEST(TopoTest, PrintedCecaRoundsAverageExactly) {
  const auto all = [](Rank n) {
    std::vector<Rank> ranks(static_cast<std::size_t>(n));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  };
  for (const Rank n : {2, 5, 7, 12, 16}) expect_averages("ceca", n, all(n));
  for (const Rank n : {5, 9, 11}) expect_averages("ceca(k=2)", n, all(n));
  expect_averages("ceca(k=3)", 14, all(14));
  expect_averages("ceca-1p", 10, all(10));
  expect_averages("live(ceca,members=[1,3..6])", 8, {1, 3, 4, 5, 6});  // rank 0 does nothing
}

TEST(TopoTest, PrintedMatrixCanBeReadBack) {
  const Folder folder;
  for (const std::string text : {"erdos-renyi(p=0.4)", "complete", "star(weights=uniform)", "exponential"}) {
    const std::string file = folder.write("graph.json", run_tool({"topo", text, "-n", "9", "--json"}).out);
    const json again = topo({fmt::format("custom(file=\"{}\")", file), "-n", "9"});
    EXPECT_EQ(rebuild(again.at("rounds")[0], 9), of_library(text, 9, 0)) << text;
  }
  // Options must state that columns sum to one, or that weights (here of a Laplacian) may be negative.
  const std::string push =
      folder.write("push.json", run_tool({"topo", "star(weights=push)", "-n", "5", "--json"}).out);
  EXPECT_EQ(
      topo({fmt::format("custom(file=\"{}\",weights=push)", push), "-n", "5"}).at("analysis").at("mixing"),
      "push-sum");
  const std::string laplacian =
      folder.write("l.json", run_tool({"topo", "star(weights=laplacian)", "-n", "5", "--json"}).out);
  EXPECT_EQ(topo({fmt::format("custom(file=\"{}\",negative=yes)", laplacian), "-n", "5"})
                .at("analysis")
                .at("nonnegative"),
            false);
}

TEST(TopoTest, DrawsIntoAFile) {
  const Folder folder;
  const std::string file = folder.path("ring.svg");
  const ToolRun run = run_tool({"topo", "ring", "-n", "8", "--svg", file});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("drawn: " + file));
  const std::string svg = read_file(file);
  EXPECT_THAT(svg, testing::AnyOf(StartsWith("<svg"), StartsWith("<?xml")));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_EQ(topo({"ring", "-n", "8", "--svg", file}).at("n"), 8);  // JSON and a picture at once
}

}  // namespace
}  // namespace starling::tool
