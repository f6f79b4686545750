#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "starling/base/os/program.h"
#include "starling/version.h"
#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

json parsed(const std::vector<std::string>& arguments) {
  const ToolRun run = run_tool(arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  return run.json();
}

TEST(CommandLineTest, ReportsUnknownWordsInOrderWithSuggestions) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"trian"}, "starling has no command 'trian' (did you mean train?)"},
      {{"bench", "asnyc"}, "starling bench has no command 'asnyc' (did you mean async?)"},
      {{"simulate", "consesus", "-n", "4", "-t", "ring"},
       "starling simulate has no command 'consesus' (did you mean consensus?)"},
      {{"compare", "ring", "--rnaks", "8"},
       "starling compare has no option '--rnaks' (did you mean --ranks?)"},
      {{"topo", "ring", "-n", "8", "--sgv=x", "--jsno"},
       "starling topo has no option '--sgv' (did you mean --svg?); starling topo has no option '--jsno' (did "
       "you "
       "mean --json?)"},
      {{"train", "--topolgy", "ring"}, "starling train has no option '--topolgy' (did you mean --topology?)"},
      {{"info", "first", "second"},
       "starling info has no argument 'first'; starling info has no argument 'second'"}};
  for (const auto& [words, complaint] : wrong) {
    const ToolRun run = run_tool(words);
    EXPECT_EQ(run.status, 2) << complaint;
    EXPECT_EQ(run.err, "starling: " + complaint + "; see --help\n");
  }
}

TEST(CompareTest, CentralizedRows) {
  const json table = parsed({"compare", "-n", "16", "ring", "ceca", "--json", "--message", "250MB",
                             "--bandwidth", "100", "--latency", "10"});
  EXPECT_EQ(table.at("message_bytes"), 250e6);
  EXPECT_EQ(table.at("bandwidth"), 12.5e9);
  ASSERT_EQ(table.at("rows").size(), 4u);
  std::map<std::string, json> rows;
  for (const json& row : table.at("rows")) rows[row.at("name")] = row;
  const double transfer = 250e6 / 12.5e9;  // M/B
  const double latency = 10e-6;
  const json& server = rows.at("parameter server");
  EXPECT_EQ(server.at("centralized"), true);
  EXPECT_EQ(server.at("bandwidth_terms"), 16);
  EXPECT_EQ(server.at("latency_terms"), 1);
  EXPECT_NEAR(server.at("step_seconds").get<double>(), 16 * transfer + latency, 1e-12);
  const json& ring = rows.at("ring all-reduce");
  EXPECT_EQ(ring.at("bandwidth_terms"), 2);
  EXPECT_EQ(ring.at("latency_terms"), 32);
  EXPECT_NEAR(ring.at("step_seconds").get<double>(), 2 * transfer + 32 * latency, 1e-12);
}

TEST(CompareTest, DecentralizedRows) {
  const json table = parsed({"compare", "-n", "16", "ring", "ceca", "random-matching", "--json"});
  const json& ring = table.at("rows")[0];
  const double rho = 1.0 / 3 + 2.0 / 3 * std::cos(2 * std::acos(-1.0) / 16);
  EXPECT_NEAR(ring.at("rho").get<double>(), rho, 1e-15);
  EXPECT_NEAR(ring.at("transient_dsgd").get<double>(), 4096 / std::pow(1 - rho, 2), 1e-6);
  EXPECT_NEAR(ring.at("transient_gradient_tracking").get<double>() / (4096 / std::pow(1 - rho, 6)), 1, 1e-9);
  EXPECT_EQ(ring.at("bytes_per_rank_per_step"), 200e6);
  EXPECT_EQ(ring.at("bytes_to_agree").get<double>(), 32 * 100e6 * ring.at("steps").get<double>());
  const json& ceca = table.at("rows")[1];
  EXPECT_EQ(ceca.at("steps"), 4);
  EXPECT_EQ(ceca.at("rho"), 0);
  EXPECT_EQ(ceca.at("transient_dsgd"), 4096 * 4 * 4);  // T = 4 steps to an exact average
  EXPECT_EQ(table.at("rows")[2].at("rho_is_mean_square"), true);
}

// The steps of a period count together: an exact schedule is not better than its period, and more ranks are
// never better than fewer.
TEST(CompareTest, TransientsTakeThePeriodIntoAccount) {
  const std::map<std::string, double> expected = {
      {"exponential", 3.21e6}, {"one-peer-exponential", 9.44e6}, {"base(k=1)", 9.44e6}, {"ceca", 9.44e6},
      {"od-equidyn", 2.94e6},  {"ou-equidyn", 4.32e6},           {"torus", 19.1e6},     {"ring", 25.4e9},
      {"complete", 0}};
  std::vector<std::string> command = {"compare", "-n", "64", "--json"};
  for (const auto& [name, steps] : expected) command.push_back(name);
  const json table = parsed(command);
  for (const json& row : table.at("rows")) {
    if (row.at("centralized").get<bool>()) continue;
    const double steps = expected.at(row.at("name"));
    EXPECT_NEAR(row.at("transient_dsgd").get<double>(), steps, 5e-3 * steps) << row.at("name");
  }
  const json& exact = table.at("rows")[5];
  EXPECT_EQ(exact.at("name"), "one-peer-exponential");
  EXPECT_EQ(exact.at("period"), 6);
  EXPECT_EQ(exact.at("rho_of_period"), 0);
  EXPECT_NEAR(exact.at("transient_gradient_tracking").get<double>(), std::pow(64, 3) * std::pow(6, 6), 1);
  double before = 0;
  for (const char* n : {"32", "48", "64"}) {
    const json one = parsed({"compare", "-n", n, "one-peer-exponential", "--json"}).at("rows")[0];
    EXPECT_GT(one.at("transient_dsgd").get<double>(), before) << n;
    before = one.at("transient_dsgd");
  }
}

TEST(CompareTest, PrintsATable) {
  const ToolRun run = run_tool({"compare", "-n", "16"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, StartsWith("16 ranks, messages of "));
  for (const std::string name :
       {"ring", "torus", "exponential", "base(k=4)", "ceca", "parameter server", "ring all-reduce"})
    EXPECT_THAT(run.out, HasSubstr("\n" + name + " ")) << name;
}

TEST(CompareTest, GivesUpOrComputesBeyondTheLimit) {
  const json table = parsed({"compare", "-n", "100", "ring", "chain", "grid", "--json", "--max-steps", "20"});
  EXPECT_EQ(table.at("rows")[0].at("outcome"), "computed");
  EXPECT_EQ(table.at("rows")[1].at("outcome"), "estimated");
  EXPECT_EQ(table.at("rows")[2].at("outcome"), "stopped");
  const ToolRun run = run_tool({"compare", "-n", "100", "grid", "--max-steps", "20"});
  EXPECT_THAT(run.out, HasSubstr("> 20"));
}

TEST(SimulateTest, PrintsJson) {
  const json race = parsed({"simulate", "consensus", "-n", "12", "-t", "ring", "base(k=2)", "od-equidyn",
                            "--json", "--dim", "3", "--seed", "4"});
  EXPECT_EQ(race.at("n"), 12);
  EXPECT_EQ(race.at("dim"), 3);
  EXPECT_EQ(race.at("seed"), 4);
  ASSERT_EQ(race.at("results").size(), 3u);
  EXPECT_EQ(race.at("results")[1].at("topology"), "base(k=2)");
  EXPECT_EQ(race.at("results")[1].at("steps"), 3);
  EXPECT_EQ(race.at("results")[2].at("schedule"), "od-equidyn(seed=4)");
  for (const json& result : race.at("results")) {
    EXPECT_EQ(result.at("outcome"), "reached");
    EXPECT_EQ(result.at("curve").front(), (json{0, 1, 0}));
    EXPECT_EQ(result.at("curve").back().at(0), result.at("steps"));
    EXPECT_EQ(result.at("curve").back().at(1), result.at("error"));
  }
  const json again =
      parsed({"simulate", "consensus", "-n", "12", "-t", "ring", "--json", "--dim", "3", "--seed", "4"});
  EXPECT_EQ(again.at("results")[0].at("curve"), race.at("results")[0].at("curve"));
}

TEST(SimulateTest, PageLoadsNothing) {
  const Folder folder;
  const std::string file = folder.path("race.html");
  const ToolRun run = run_tool({"simulate", "consensus", "-n", "12", "-t", "ring", "base", "--html", file});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, HasSubstr("report: " + file));
  const std::string page = read_file(file);
  EXPECT_THAT(page, HasSubstr("<html"));
  EXPECT_THAT(page, HasSubstr("starling simulate consensus -n 12 -t ring base"));
  const std::regex loads(
      "<(script|img|iframe|link|object|embed|source|image|use)[^>]*\\s(src|href|data|xlink:href)\\s*=\\s*[\"'"
      "]?([^\"'>]*)",
      std::regex::icase);
  for (std::sregex_iterator at(page.begin(), page.end(), loads), end; at != end; ++at)
    EXPECT_TRUE((*at)[3].str().starts_with("data:") || (*at)[3].str().starts_with("#")) << at->str();
  EXPECT_FALSE(
      std::regex_search(page, std::regex("@import|url\\(\\s*[\"']?(https?:)?//", std::regex::icase)));
}

TEST(ToolTest, IsQuietInAPipe) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"topo"},
        {"topo", "base", "-n", "12", "--rank", "3"},
        {"compare", "-n", "300", "torus", "ring"},
        {"simulate", "consensus", "-n", "2000", "-t", "torus", "ring"}}) {
    const ToolRun run = run_tool(arguments);
    EXPECT_EQ(run.status, 0);
    EXPECT_EQ(run.err, "") << arguments[0];
    EXPECT_THAT(run.out, Not(HasSubstr("\033"))) << arguments[0];  // neither colors nor overwritten lines
    EXPECT_THAT(run.out, Not(HasSubstr("\r"))) << arguments[0];
    EXPECT_TRUE(run.out.ends_with("\n") && !run.out.ends_with("\n\n")) << arguments[0];
  }
}

struct Mistake {
  std::vector<std::string> arguments;
  std::string message;  // a part of it
};

TEST(ToolTest, MistakesAreOneLineAndStatusTwo) {
  const std::vector<Mistake> mistakes = {
      {{"topo", "rng", "-n", "4"}, "starling: unknown topology 'rng' (did you mean ring?); valid are ring, "},
      {{"topo", "ring"}, "starling: give the number of ranks: starling topo NAME -n N"},
      {{"topo", "ring(k=1)", "-n", "4"}, "starling: ring has no parameter 'k'; valid are weights=metropolis"},
      {{"topo", "ring(", "-n", "4"}, "expected a name or a value at position 6, found the end"},
      {{"topo", "hypercube", "-n", "6"},
       "starling: hypercube: n = 6 is not a power of two; nearest are 4 and 8"},
      {{"topo", "ring", "-n", "4", "--rank", "4"}, "starling: --rank 4 is not one of the 4 ranks 0..3"},
      {{"topo", "ring", "-n", "0"}, "--ranks: Value 0 not in range 1 to 2147483647"},
      {{"topo", "ring", "-n", "x"}, "--ranks"},
      {{"topo", "ring", "-n", "4", "--steps", "0"}, "--steps"},
      {{"topo", "ring", "-n", "4", "--color"}, "--color"},
      {{"topo", "ring", "-n", "4", "--svg", "/no/such/folder/a.svg"},
       "starling: cannot write /no/such/folder/a.svg: No such file or directory"},
      {{"topo", "custom(file=/no/such/file)", "-n", "4"},
       "starling: cannot open the graph file /no/such/file"},
      {{"compare"}, "starling compare needs -n or --ranks"},
      {{"compare", "-n", "8", "ring", "rng"}, "starling: unknown topology 'rng'"},
      {{"compare", "-n", "8", "ring", "--tolerance", "2"}, "starling: tolerance 2 is not between 0 and 1"},
      {{"compare", "-n", "8", "ring", "--bandwidth", "0"}, "--bandwidth"},
      {{"simulate"}, "starling simulate needs a command: consensus, train"},
      {{"topo", "-n", "4"}, "--ranks needs a topology, as in: starling topo ring -n 8"},
      {{"topo", "--rank", "2"}, "--rank needs a topology"},
      {{"compare", "-n", "4", "--message", "3xb"}, "3xb is not a number of bytes, such as 4096, 400kB"},
      {{"methods", "local-sgd(tau=0)"}, "give its name only, local-sgd"},
      {{"topologies", "base(k=2)"}, "starling topologies shows a topology with all its parameters"},
      {{"codecs", "top-k(fraction=2)"}, "give its name only, top-k"},
      {{"simulate", "consensus", "-n", "4"},
       "starling simulate consensus needs -t or --topology or TOPOLOGY"},
      {{"simulate", "consensus", "-n", "4", "-t", "ring", "--dim", "0"}, "--dim"},
      {{"simulate", "consensus", "-n", "4", "-t", "ring", "--html", "/no/such/folder/a.html"},
       "starling: cannot write /no/such/folder/a.html"},
      {{"fly"}, "fly"},
  };
  for (const auto& [arguments, message] : mistakes) {
    const ToolRun run = run_tool(arguments);
    SCOPED_TRACE(testing::PrintToString(arguments));
    EXPECT_EQ(run.status, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, StartsWith("starling: "));
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1);
    EXPECT_TRUE(run.err.ends_with("\n"));
  }
}

TEST(ToolTest, HelpOfEveryCommandNamesItsOptions) {
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> commands = {
      {{}, {"topo", "compare", "simulate", "--version"}},
      {{"topo"},
       {"NAME", "-n,--ranks", "--steps", "--rank", "--seed", "--message", "--json", "--svg", "Example"}},
      {{"compare"},
       {"-n,--ranks", "--tolerance", "--max-steps", "--message", "--bandwidth", "--latency", "--seed",
        "--json", "Example"}},
      {{"simulate"}, {"consensus"}},
      {{"simulate", "consensus"},
       {"-n,--ranks", "-t,--topology", "--tolerance", "--dim", "--seed", "--max-steps", "--html", "--json",
        "Example"}},
  };
  for (const auto& [command, options] : commands)
    for (const std::string flag : {"--help", "-h"}) {
      auto arguments = command;
      arguments.push_back(flag);
      const ToolRun run = run_tool(arguments);
      EXPECT_EQ(run.status, 0) << testing::PrintToString(arguments);
      EXPECT_EQ(run.err, "");
      for (const std::string& option : options)
        EXPECT_THAT(run.out, HasSubstr(option)) << testing::PrintToString(arguments);
    }
}

// The lines under this heading of a help text, without leading blanks.
std::vector<std::string> lines_under(const std::string& heading, const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream rest(text.substr(std::min(text.size(), text.find("\n" + heading + ":\n"))));
  std::string line;
  std::getline(rest, line);
  for (std::getline(rest, line); std::getline(rest, line) && line.starts_with("  ");)
    lines.push_back(line.substr(2));
  return lines;
}

// Help must not show the parser's own types (UINT, TEXT:{a,b}). Returns the number of commands seen.
int expect_plain_help(std::vector<std::string> words) {
  words.emplace_back("--help");
  const ToolRun run = run_tool(words);
  words.pop_back();
  SCOPED_TRACE(testing::PrintToString(words));
#ifndef STARLING_HAS_TORCH
  if (run.status != 0 && run.err.find("without libtorch") != std::string::npos) return 1;
#endif
  EXPECT_EQ(run.status, 0) << run.err;
  for (const char* raw : {"\\b(U?INT|FLOAT)\\b", "[A-Z]:", "TEXT \\.\\.\\.", "=\\[", "REQUIRED", "Needs:"})
    EXPECT_FALSE(std::regex_search(run.out, std::regex(std::string("\n  -.* ") + raw))) << raw << run.out;
  int seen = 1;
  for (const std::string& line : lines_under("Subcommands", run.out)) {
    words.push_back(line.substr(0, line.find(' ')));
    seen += expect_plain_help(words);
    words.pop_back();
  }
  return seen;
}

TEST(ToolTest, HelpOfEveryCommandSaysInPlainWordsWhatOptionsTake) {
  EXPECT_GT(expect_plain_help({}), 18);
  const std::string run = run_tool({"run", "--help"}).out;
  EXPECT_THAT(run, HasSubstr("--ranks NUMBER"));
  EXPECT_THAT(run, HasSubstr("--fabric local|c10d|hybrid|hybrid(c10d)"));
  EXPECT_THAT(run, HasSubstr("--on-failure stop|continue"));
  EXPECT_THAT(run_tool({"simulate", "train", "--help"}).out,
              HasSubstr("--method METHOD...           one or more methods (default: dsgd-awc)\n"));
  EXPECT_THAT(run_tool({"compare", "--help"}).out,
              testing::AllOf(HasSubstr("number of ranks (required)\n"), HasSubstr("--message BYTES")));
  EXPECT_THAT(run, HasSubstr("run [OPTIONS] PROGRAM [ARGUMENTS...]\n"));
#ifdef STARLING_HAS_TORCH
  EXPECT_THAT(
      run_tool({"train", "--help"}).out,
      testing::AllOf(HasSubstr("--topology TOPOLOGY"), HasSubstr("--on-peer-failure raise|reweight")));
#endif
}

ToolRun shell(const std::string& line) {
  const auto run = run_program({"/bin/sh", "-c", line}, std::chrono::seconds(60));
  return {run.ending.exit_status(), run.out, run.err};
}

TEST(ToolTest, AFailedWriteLeavesNoPartOfAFile) {
  const Folder folder;
  const ToolRun run = shell(std::string("trap '' XFSZ; ulimit -f 8; ") + STARLING_TOOL_PATH +
                            " simulate consensus -n 8 -t ring --html " + folder.path("a.html"));
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err, "starling: cannot write " + folder.path("a.html") + ": File too large\n");
  EXPECT_FALSE(std::filesystem::exists(folder.path("a.html")));
}

TEST(ToolTest, NamesMisspeltVariables) {
  const std::string line =
      "starling: STARLING_TIMOUT is set, which is not a variable of Starling (did you mean "
      "STARLING_TIMEOUT?)\n";
  const std::string tool = STARLING_TOOL_PATH;
  EXPECT_EQ(shell("STARLING_TIMOUT=3 STARLING_OF_ANOTHER=1 " + tool + " topo ring -n 4").err, line);
  EXPECT_EQ(shell("STARLING_TIMEOUT=3 " + tool + " topo ring -n 4").err, "");
}

TEST(ToolTest, CountsOneInTheSingular) {
  EXPECT_THAT(run_tool({"topo", "ring", "-n", "1"}).out, HasSubstr("on 1 rank\n"));
}

TEST(ToolTest, PrintsHelpWithoutACommand) {
  const ToolRun run = run_tool({});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, run_tool({"--help"}).out);
}

TEST(ToolTest, Version) {
  const ToolRun run = run_tool({"--version"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, std::string("starling ") + STARLING_VERSION + "\n");
}

}  // namespace
}  // namespace starling::tool
