#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "base/eventually.h"
#include "tool/tool_runner.h"
#include "tool/training_logs.h"

namespace starling::tool {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::size_t lines_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The times at which the logs of finished runs were last written.
std::map<std::string, fs::file_time_type> finished_runs(const std::string& folder) {
  std::map<std::string, fs::file_time_type> times;
  if (!fs::exists(folder + "/runs")) return times;
  for (const auto& run : fs::directory_iterator(folder + "/runs")) {
    const std::string log = run.path() / "metrics.jsonl";
    if (!of_kind(read_log(log), "end").empty()) times[log] = fs::last_write_time(log);
  }
  return times;
}

std::vector<std::string> small_sweep(const std::string& out, std::vector<std::string> more) {
  std::vector<std::string> words = {
      "sweep",     "--data", "synthetic(train=600,test=100)", "--workers", "2", "--epochs", "1", "--out", out,
      "--reports", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(SweepCommand, ListsWhatItWouldRun) {
  const ToolRun run = run_tool({"sweep", STARLING_EXAMPLES "/experiments/topologies.toml", "--list"});
  ASSERT_EQ(run.status, 0) << run.err;
  // (2 methods x 4 topologies + relay-sgd x 2 + allreduce) x 2 rates x 3 seeds
  EXPECT_EQ(lines_of(run.out, "starling train "), 66U);
  EXPECT_THAT(run.out, HasSubstr("'--topology=base(k=1)'"));
  const ToolRun one = run_tool({"sweep", STARLING_EXAMPLES "/experiments/topologies.toml", "--list", "--lr",
                                "0.1", "--seed", "7", "--topology", "ring"});
  EXPECT_EQ(lines_of(one.out, "starling train "), 4U) << one.out;
  EXPECT_EQ(lines_of(one.out, "--topology=ring"), 4U) << "the command line wins over cases, too";
  EXPECT_EQ(lines_of(one.out, "--seed=7"), 4U);
  const ToolRun train = run_tool({"sweep", STARLING_EXAMPLES "/experiments/mnist.toml", "--list"});
  EXPECT_EQ(lines_of(train.out, "starling train "), 1U) << train.err;
}

// Names are checked before anything runs, so that a misspelled one costs nothing.
TEST(SweepCommand, RefusesUnknownNames) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--topology=rign", "unknown topology 'rign' (did you mean ring?)"},
      {"--method=dsgd-act", "unknown method 'dsgd-act' (did you mean dsgd-atc?)"},
      {"--optimizer=adma", "unknown optimizer 'adma' (did you mean adam?)"},
      {"--model=lenit", "unknown model 'lenit' (did you mean lenet?)"},
      {"--data=mnits", "unknown data set 'mnits' (did you mean mnist?)"},
      {"--topology=base(kk=1)", "base has no parameter 'kk' (did you mean k?); valid are k=1"},
      {"--method=choco(codec=sgin)", "unknown codec 'sgin' (did you mean sign?)"},
      {"--optimizer=adam(lr=1,bate1=1)", "adam has no parameter 'bate1' (did you mean beta1?)"},
      {"--model=mlp(widht=5)", "mlp has no parameter 'widht' (did you mean width?)"},
      {"--data=synthetic(tarin=5)", "synthetic has no parameter 'tarin' (did you mean train?)"},
      {"--partition=dirichlet(alhpa=1)", "dirichlet has no parameter 'alhpa' (did you mean alpha?)"},
      {"--message=bf61", "unknown wire format 'bf61' (did you mean bf16?)"},
      {"--accumulation=0", "accumulation = 0: a step takes at least one batch"}};
  for (const auto& [option, complaint] : wrong) {
    const ToolRun run = run_tool({"sweep", "--seed", "1", "2", option, "--list"});
    EXPECT_EQ(run.status, 2) << option;
    EXPECT_THAT(run.err, HasSubstr(complaint));
    EXPECT_EQ(run.out, "");
  }
}

TEST(SweepCommand, MarksDivergedRunsAndContinues) {
  const Folder folder;
  const ToolRun run = run_tool(
      small_sweep(folder.path("some"), {"--optimizer", "sgd(lr=1e6)", "sgd(lr=0.01)", "--model", "mlp"}));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out,
              testing::ContainsRegex("1e6.* diverged: rank [01]'s loss was not a finite number in step"));
  EXPECT_THAT(run.out, HasSubstr("1 diverged"));
  EXPECT_EQ(finished_runs(folder.path("some")).size(), 2U);
  EXPECT_EQ(
      run_tool(small_sweep(folder.path("all"), {"--optimizer", "sgd(lr=1e6)", "--model", "mlp"})).status, 3);
}

TEST(SweepCommand, TakesFormerNamesOfSettings) {
  const Folder folder;
  const std::string file = folder.write("s.toml", "on_loss = [\"raise\", \"reweight\"]\n");
  const ToolRun run = run_tool({"sweep", file, "--list"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(lines_of(run.out, "--on-peer-failure="), 2U) << run.out;
  EXPECT_THAT(run.err, HasSubstr("on_loss is now called on_peer_failure"));
  for (const std::string command : {"sweep", "train"}) {
    const ToolRun both = run_tool({command, "--on-loss", "reweight", "--on-peer-failure", "raise"});
    EXPECT_EQ(both.status, 2);
    EXPECT_THAT(both.err, HasSubstr("--on-loss is the former name of --on-peer-failure")) << command;
  }
  const ToolRun typed = run_tool({"sweep", "--on-loss", "reweight", "--list"});
  EXPECT_EQ(lines_of(typed.out, "--on-peer-failure=reweight"), 1U) << typed.out << typed.err;
  EXPECT_THAT(typed.err, HasSubstr("--on-loss is now called --on-peer-failure"));
}

TEST(SweepCommand, NamesLineAndKeyOfMistakes) {
  const Folder folder;
  const auto complaint = [&](const std::string& text) {
    const ToolRun run = run_tool({"sweep", folder.write("s.toml", text), "--list"});
    EXPECT_EQ(run.status, 2);
    return run.err;
  };
  EXPECT_THAT(complaint("seed = [1, 2]\nmetod = \"x\"\n"), HasSubstr("s.toml, line 2: unknown key 'metod'"));
  EXPECT_THAT(complaint("seed = [1, \"two\"]\n"),
              HasSubstr("s.toml, line 1: seed = \"two\" is not a whole number"));
  EXPECT_THAT(complaint("[[case]]\nmethod = \"x\"\nlr = \"y\"\n"),
              HasSubstr("line 3: lr = \"y\" is not a number"));
  EXPECT_THAT(complaint("[case]\nmethod = \"x\"\n"), HasSubstr("line 2: write [[case]]"));
  EXPECT_THAT(complaint("report = \"x\"\n"), HasSubstr("line 1: unknown key 'report'"));
  EXPECT_EQ(run_tool({"sweep", "--out", "/proc/nowhere", "--data", "synthetic"}).status, 2);
}

TEST(SweepCommand, ResumesWhereItWasInterrupted) {
  const Folder folder;
  const std::string out = folder.path("out");
  const auto words =
      small_sweep(out, {"--method", "dsgd-awc", "allreduce", "--seed", "1", "2", "--at-once", "1"});
  {
    StartedTool sweep(words);
    ASSERT_TRUE(eventually([&] { return finished_runs(out).size() >= 2; }));
    sweep.signal(SIGINT);
    EXPECT_NE(sweep.finish().status, 0);
  }
  const auto before = finished_runs(out);
  ASSERT_LT(before.size(), 4U) << "it was not interrupted in time";
  const ToolRun run = run_tool(words);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("4 runs (" + std::to_string(before.size()) + " already done)"));
  const auto after = finished_runs(out);
  EXPECT_EQ(after.size(), 4U);
  for (const auto& [log, time] : before) EXPECT_EQ(after.at(log), time) << log << " was run again";
  EXPECT_THAT(run.out, testing::ContainsRegex("\nallreduce +0.05 .*±.* 2\n")) << run.out;
  const std::string page = read_file(out + "/report.html");
  for (const char* part : {"allreduce", "dsgd-awc", "±"})
    EXPECT_TRUE(page.find(part) != std::string::npos) << part;
}

TEST(SweepCommand, ReportsWhatFailedAndKeepsTheRest) {
  const Folder folder;
  const std::string out = folder.path("out");
  const ToolRun run = run_tool(small_sweep(out, {"--method", "dsgd-awc", "dadam"}));
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("starling: method=dadam: dadam needs Adam"));
  EXPECT_EQ(lines_of(run.err, "\n"), 1U) << run.err;
  EXPECT_THAT(run.out, testing::ContainsRegex("method=dadam +failed"));
  EXPECT_EQ(finished_runs(out).size(), 1U);
  EXPECT_TRUE(read_file(out + "/report.html").find("<p>dsgd-awc") != std::string::npos);
}

}  // namespace
}  // namespace starling::tool
