#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/toy_runs.h"
#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using testing::HasSubstr;

/// Writes a run as FOLDER/NAME/metrics.jsonl.
std::string write_run(const Folder& folder, const std::string& name, const RunLog& run) {
  std::filesystem::create_directories(folder.path(name));
  return folder.write(name + "/metrics.jsonl", text_of(run));
}

ToolRun report(const Folder& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "report");
  arguments.insert(arguments.end(), {"--html", folder.path("page.html")});
  return run_tool(arguments);
}

TEST(ReportCommand, ReportsOneRun) {
  const Folder folder;
  const std::string log = write_run(folder, "a", toy_run({}));
  const ToolRun run = report(folder, {log, "--title", "My run"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, testing::ContainsRegex(
                           "dsgd-awc +ring +0.05 +90.00 % +88.00 % +91.00 % +20 s +640 kB +30.0 %"));
  EXPECT_THAT(run.out, testing::EndsWith("report: " + folder.path("page.html") + "\n"));
  const std::string html = read_file(folder.path("page.html"));
  EXPECT_THAT(html, HasSubstr("<h1>My run</h1>"));
  EXPECT_THAT(html, HasSubstr("Made by<code>starling report " + log));
}

TEST(ReportCommand, SearchesFoldersAndCountsNoRunTwice) {
  const Folder folder;
  int number = 0;
  std::string first;
  for (const RunLog& run : toy_sweep()) {
    const std::string log = write_run(folder, "deep/er/" + std::to_string(number++), run);
    if (first.empty()) first = log;
  }
  folder.write("deep/other.jsonl", "not a log");
  const ToolRun run = report(folder, {first, folder.path("deep"), "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  const auto task = run.json().at("tasks").at(0);
  EXPECT_EQ(task.at("name"), "lenet on mnist");
  ASSERT_EQ(task.at("groups").size(), 2U);
  const auto group = task.at("groups").at(0);
  EXPECT_EQ(group.at("label"), "dsgd-awc");
  EXPECT_EQ(group.at("settings").at("optimizer"), "momentum(momentum=0.8)");
  const auto best = group.at("learning_rates").at(1);
  EXPECT_EQ(best.at("lr"), 0.1);
  EXPECT_EQ(best.at("chosen"), true);
  EXPECT_EQ(group.at("learning_rates").at(0).at("chosen"), false);
  EXPECT_NEAR(best.at("mean_accuracy"), 0.815, 1e-12);
  EXPECT_NEAR(best.at("deviation"), 0.01 / std::sqrt(2.0), 1e-12);
  ASSERT_EQ(best.at("runs").size(), 2U);
  EXPECT_EQ(best.at("runs").at(0).at("outcome"), "finished");
  EXPECT_EQ(best.at("runs").at(0).at("bytes_sent"), 640000);
  EXPECT_NEAR(best.at("runs").at(0).at("test_loss"), 0.19, 1e-12);
  EXPECT_NEAR(best.at("runs").at(0).at("local_accuracy"), 0.79, 1e-12);
  EXPECT_NEAR(best.at("runs").at(0).at("local_mean_accuracy"), 0.82, 1e-12);
  EXPECT_THAT(read_file(folder.path("page.html")), HasSubstr("81.50 ± 0.71 %"));

  const ToolRun both = report(folder, {folder.path("deep"), "--json", folder.path("out.json")});
  EXPECT_THAT(both.out, HasSubstr("81.50 ± 0.71 %"));
  EXPECT_EQ(nlohmann::json::parse(read_file(folder.path("out.json"))), run.json());
}

// A log with the name that `starling train --report first.html` gives it.
TEST(ReportCommand, FindsLogsOfAnyNameInAFolder) {
  const Folder folder;
  folder.write("first.jsonl", text_of(toy_run({})));
  folder.write("other.jsonl", "{\"kind\":\"else\"}\n");
  const ToolRun run = report(folder, {folder.path(".")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("dsgd-awc"));
}

TEST(ReportCommand, ReadsATruncatedLogAndWarns) {
  const Folder folder;
  const std::string log = write_run(folder, "a", toy_run({.finished = false}));
  folder.write("a/metrics.jsonl", read_file(log) + "{\"kind\":\"rep");
  const ToolRun run = report(folder, {log});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "starling: the last line of " + log + " is cut off and left out\n");
  EXPECT_THAT(run.out, HasSubstr("1 (1 unfinished)"));
}

TEST(ReportCommand, PrintsMistakesInOneLine) {
  const Folder folder;
  const auto complaint = [&](const std::vector<std::string>& arguments) {
    const ToolRun run = report(folder, arguments);
    EXPECT_EQ(run.status, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_FALSE(std::filesystem::exists(folder.path("page.html")));
    return run.err;
  };
  EXPECT_THAT(complaint({}), HasSubstr("starling report needs RUN"));
  EXPECT_THAT(complaint({folder.path(".")}),
              HasSubstr("there is no log of a run (such as metrics.jsonl) in " + folder.path(".")));
  EXPECT_THAT(complaint({folder.path("none")}),
              HasSubstr("cannot read " + folder.path("none") + ": No such file"));
  const std::string log = write_run(folder, "a", toy_run({}));
  folder.write("a/metrics.jsonl", read_file(log) + "nonsense\n" + read_file(log));
  EXPECT_THAT(complaint({log}), HasSubstr(log + ":23: not a JSON object"));
}

TEST(ReportCommand, NeverOverwritesALog) {
  const Folder folder;
  const std::string a = write_run(folder, "a", toy_run({}));
  const std::string b = write_run(folder, "b", toy_run({"allreduce"}));
  const std::string before = read_file(a);
  EXPECT_THAT(report(folder, {"--json", a, b}).err, HasSubstr("--json would write over " + a));
  EXPECT_THAT(run_tool({"report", b, "--html", a}).err, HasSubstr("--html would write over " + a));
  EXPECT_EQ(read_file(a), before);
}

}  // namespace
}  // namespace starling::tool
