#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tool/tool_runner.h"
#include "tool/training_logs.h"

// The commands that need libtorch, as a user runs them.
namespace starling::tool {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(DemoCommand, RunsThreeActsAndWritesAPage) {
  const Folder folder;
  const ToolRun run = run_tool({"demo", "--data", "synthetic(train=1000,test=300)", "--workers", "3",
                                "--quick", "--html", folder.path("demo.html")});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, testing::ContainsRegex("=> .* all-reduce: .* % against .* %"));
  EXPECT_THAT(run.out, HasSubstr("worker 1 died by step"));
  EXPECT_THAT(run.err, HasSubstr("worker 1 was killed (SIGKILL); 2 of 3 continue"));
  EXPECT_THAT(run.out, testing::ContainsRegex("=> A slow worker .*x as fast as all-reduce"));
  EXPECT_THAT(run.out, HasSubstr("2 of 3 continued to the end"));
  const std::string page = read_file(folder.path("demo.html"));
  for (const char* part : {"class=\"card verdicts\"", "A slow worker", "died by step", "Loss against seconds",
                           "Test accuracy of the mean model", "Consensus distance", "<svg"})
    EXPECT_THAT(page, HasSubstr(part));
  // Evaluated every quarter of an epoch.
  std::vector<double> evaluated;
  for (const json& report : of_kind(read_log(folder.path("demo.neighbors.jsonl")), "report"))
    if (report.contains("test_accuracy")) evaluated.push_back(report.at("epoch"));
  EXPECT_EQ(evaluated.size(), 16U);  // 4 epochs
}

TEST(DemoCommand, SaysWhatIsWrongBeforeItTrains) {
  const ToolRun page = run_tool({"demo", "--html", "/nowhere/demo.html"});
  EXPECT_EQ(page.status, 2);
  EXPECT_THAT(page.err, HasSubstr("/nowhere/demo.html"));
  const ToolRun data = run_tool({"demo", "--data", "mnistt"});
  EXPECT_EQ(data.status, 2);
  EXPECT_THAT(data.err, HasSubstr("mnist"));
}

TEST(BenchTrainingCommand, MeasuresStepsBesideStepsAlone) {
  const ToolRun run = run_tool({"bench", "training", "--quick", "--alone", "--only", "lenet n=2", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const json cases = run.json();
  ASSERT_EQ(cases.size(), 1U);
  EXPECT_EQ(cases[0].at("network"), "lenet");
  EXPECT_GT(cases[0].at("alone"), 0);
  EXPECT_EQ(cases[0].at("over_alone").size(), 3U);
  EXPECT_GT(cases[0].at("over_alone")[0], 0);
}

TEST(BenchTrainingCommand, RefusesUnknownCases) {
  const ToolRun run = run_tool({"bench", "training", "--only", "vgg"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr("lenet n=2"));
}

TEST(BenchScalingCommand, CountsImagesOfMethodsOnTopologies) {
  const ToolRun run = run_tool({"bench", "scaling", "--workers", "1,2", "--rounds", "2", "--seconds", "0.02",
                                "--methods", "dsgd-atc;allreduce", "--topologies", "ring", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const json points = run.json();
  ASSERT_EQ(points.size(), 6U);  // without communication, dsgd-atc and allreduce, with 1 and 2 workers
  for (const json& point : points) {
    EXPECT_EQ(point.at("images_per_second").size(), 2U);
    EXPECT_GT(point.at("images_per_second")[0], 0);
  }
  EXPECT_EQ(points[4].at("method"), "dsgd-atc");
  EXPECT_EQ(points[4].at("topology"), "ring");
  EXPECT_EQ(points[4].at("n"), 2);
}

TEST(BenchScalingCommand, ReportsRefusalsOfAMethod) {
  const ToolRun run = run_tool({"bench", "scaling", "--workers", "3", "--rounds", "1", "--methods",
                                "relay-sgd", "--topologies", "ring"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr("needs a tree"));
}

}  // namespace
}  // namespace starling::tool
