#include "starling/report/run_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/toy_runs.h"
#include "starling/report/training_tables.h"

namespace starling::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> labels(const RunTask& task) {
  std::vector<std::string> found;
  for (const RunTask::Member& entry : task.entries()) found.push_back(entry.label);
  return found;
}

TEST(RunGroups, SeedsAreRepetitionsAndTheBestRateIsChosen) {
  const auto runs = toy_sweep();
  const auto tasks = group_runs(runs);
  ASSERT_EQ(tasks.size(), 1U);
  EXPECT_EQ(tasks[0].name, "lenet on mnist");
  EXPECT_THAT(tasks[0].distinct, ElementsAre("method"));
  EXPECT_THAT(labels(tasks[0]), ElementsAre("dsgd-awc", "allreduce"));
  ASSERT_EQ(tasks[0].groups.size(), 2U);
  const RunGroup& neighbors = tasks[0].groups[0];
  ASSERT_EQ(neighbors.cells.size(), 2U);
  EXPECT_EQ(neighbors.best().learning_rate, 0.1);
  EXPECT_EQ(neighbors.best().runs.size(), 2U);
  EXPECT_NEAR(*neighbors.best().mean, 0.815, 1e-12);
  EXPECT_NEAR(*neighbors.best().deviation, 0.01 / std::sqrt(2.0), 1e-12);  // for a sample of two
  const RunGroup& central = tasks[0].groups[1];
  EXPECT_EQ(central.best().learning_rate, 0.05);
  EXPECT_EQ(central.cells[1].ended(RunOutcome::diverged), 2U);
  EXPECT_EQ(central.best().ended(RunOutcome::finished), 2U);
  EXPECT_TRUE(tasks[0].compares_learning_rates());
}

TEST(RunGroups, ADivergedRunNeverBeatsAFinishedOne) {
  const auto chosen = [](std::vector<RunLog> runs) {
    return *group_runs(runs)[0].groups[0].best().learning_rate;
  };
  const RunLog poor = toy_run({"a", "ring", 0.01, 1, 0});
  RunLog diverged = toy_run({"a", "ring", 0.1, 1, 0.9});
  diverged.end->diverged = RunDivergence{3, 0};
  EXPECT_EQ(chosen({poor, diverged}), 0.01);
  EXPECT_EQ(chosen({diverged}), 0.1);
  // One of the two seeds diverged; it counts as 0.
  const RunLog lucky = toy_run({"a", "ring", 0.1, 2, 0.9});
  EXPECT_EQ(chosen({diverged, lucky, toy_run({"a", "ring", 0.01, 1, 0.5})}), 0.01);
  EXPECT_EQ(chosen({diverged, lucky, toy_run({"a", "ring", 0.01, 1, 0.4})}), 0.1);
}

TEST(RunGroups, EqualAccuraciesTakeTheLargerRate) {
  // The same three accuracies in different orders: their means differ in the last bit.
  std::vector<RunLog> runs;
  for (const double accuracy : {0.1, 0.7, 0.3}) runs.push_back(toy_run({"m", "ring", 0.2, 1, accuracy}));
  for (const double accuracy : {0.7, 0.3, 0.1}) runs.push_back(toy_run({"m", "ring", 0.1, 1, accuracy}));
  for (const double accuracy : {0.3, 0.1, 0.7}) runs.push_back(toy_run({"m", "ring", 0.05, 1, accuracy}));
  EXPECT_EQ(group_runs(runs)[0].groups[0].best().learning_rate, 0.2);
}

TEST(RunGroups, RunsWithoutAccuracyCountAsZero) {
  std::vector<RunLog> runs = {toy_run({"m", "ring", 0.1, 1, 0.9}), toy_run({"m", "ring", 0.1, 2, 0.9})};
  runs[1].end.reset();
  runs[1].reports.resize(5);
  EXPECT_EQ(outcome_of(runs[1]), RunOutcome::unfinished);
  EXPECT_EQ(final_accuracy(runs[1]), std::nullopt);
  const auto tasks = group_runs(runs);
  const RunCell& cell = tasks[0].groups[0].best();
  EXPECT_NEAR(*cell.mean, 0.45, 1e-12);
  EXPECT_EQ(cell.mean_reports().size(), 5U);
  // If no run has an accuracy, any other learning rate is better.
  runs[0].reports.resize(5);
  runs.push_back(toy_run({"m", "ring", 0.05, 1, 0}));
  const auto later = group_runs(runs);
  EXPECT_EQ(later[0].groups[0].cells[1].mean, std::nullopt);
  EXPECT_EQ(later[0].groups[0].best().learning_rate, 0.05);
}

TEST(RunGroups, SkipsEvaluationsThatAreNotNumbers) {
  RunLog run = toy_run({});
  run.reports.back().test_accuracy = std::nan("");
  EXPECT_EQ(outcome_of(run), RunOutcome::diverged);
  EXPECT_NEAR(*final_accuracy(run), 0.7, 1e-12);
}

TEST(RunGroups, MeanReportsAreMeans) {
  std::vector<RunLog> runs = {toy_run({"m", "ring", 0.1, 1, 0.8, 1}), toy_run({"m", "ring", 0.1, 2, 0.6, 3})};
  runs[1].reports[4].step = 51;  // this step is not in both runs
  const auto tasks = group_runs(runs);
  const auto reports = tasks[0].groups[0].best().mean_reports();
  ASSERT_EQ(reports.size(), 19U);
  EXPECT_EQ(reports[3].step, 40);
  EXPECT_EQ(reports[4].step, 60);
  EXPECT_NEAR(reports[0].seconds, 2, 1e-12);
  EXPECT_NEAR(reports[0].loss, (runs[0].reports[0].loss + runs[1].reports[0].loss) / 2, 1e-12);
  EXPECT_NEAR(reports[0].waiting, 0.6, 1e-12);
  EXPECT_EQ(reports[0].bytes_sent, 32000U);
  EXPECT_EQ(reports[0].test_accuracy, std::nullopt);
  EXPECT_NEAR(*reports.back().test_accuracy, 0.7, 1e-12);
  EXPECT_NEAR(*reports.back().local_accuracy_least, 0.65, 1e-12);
}

TEST(RunGroups, LabelsGroupsByWhatDiffers) {
  std::vector<RunLog> runs = {toy_run({"a", "ring"}), toy_run({"a", "torus"}), toy_run({"a", "ring"})};
  runs[2].header.workers = 16;
  EXPECT_THAT(labels(group_runs(runs)[0]),
              ElementsAre("ring · 8 workers", "torus · 8 workers", "ring · 16 workers"));
  for (RunSetting& setting : runs[1].header.experiment)
    if (setting.name == "batch") setting.value = "64";
  EXPECT_THAT(labels(group_runs(runs)[0]),
              ElementsAre("ring · batch 32 · 8 workers", "torus · batch 64 · 8 workers",
                          "ring · batch 32 · 16 workers"));
}

// Their label is the spelling that occurs first.
TEST(RunGroups, SpellingsOfOneSettingAreOneGroup) {
  std::vector<RunLog> runs;
  for (const char* topology : {"base", "base(1)", "base(k=1)", "base(k=2)"}) {
    runs.push_back(toy_run({"a", topology}));
    const std::string k = std::string_view(topology) == "base(k=2)" ? "2" : "1";
    runs.back().header.canonical = {{"topology", "base(k=" + k + ")"}};
  }
  const auto tasks = group_runs(runs);
  EXPECT_THAT(tasks[0].distinct, ElementsAre("topology"));
  EXPECT_THAT(labels(tasks[0]), ElementsAre("base", "base(k=2)"));
  EXPECT_EQ(tasks[0].groups[0].best().runs.size(), 3U);
}

TEST(RunGroups, SpellingsOfOneOptimizerOrModelAreOneGroup) {
  std::vector<RunLog> runs = {toy_run({}), toy_run({}), toy_run({})};
  const std::vector<std::string> optimizers = {"momentum", "momentum(0.05)", "momentum(momentum=0.9)"};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (RunSetting& setting : runs[i].header.experiment)
      if (setting.name == "optimizer") setting.value = optimizers[i];
    runs[i].header.canonical = {{"model", "lenet()"}, {"optimizer", "momentum(lr=0.05,momentum=0.9)"}};
  }
  runs[1].header.experiment[1].value = "lenet()";
  const auto tasks = group_runs(runs);
  ASSERT_EQ(tasks.size(), 1U);
  EXPECT_EQ(tasks[0].name, "lenet on mnist");
  ASSERT_EQ(tasks[0].groups.size(), 1U);
  EXPECT_EQ(tasks[0].groups[0].best().runs.size(), 3U);
  EXPECT_EQ(tasks[0].groups[0].best().learning_rate, 0.05) << "the default is known";
}

TEST(RunGroups, LearningRatesOfOneGroupStandSideBySide) {
  const std::vector<RunLog> runs = {toy_run({"a", "ring", 0.1}), toy_run({"a", "ring", 0.05})};
  EXPECT_THAT(labels(group_runs(runs)[0]), ElementsAre("lr 0.05", "lr 0.1"));
  EXPECT_THAT(labels(group_runs({runs.begin(), runs.begin() + 1})[0]), ElementsAre("a · ring"));
}

TEST(RunGroups, DataSetsAreSeparateTasks) {
  std::vector<RunLog> runs = {toy_run({}), toy_run({}), toy_run({})};
  runs[1].header.experiment[0].value = "synthetic";
  const auto tasks = group_runs(runs);
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[0].groups[0].best().runs.size(), 2U);
  EXPECT_EQ(tasks[1].name, "lenet on synthetic");
}

TEST(TrainingTables, SayMeanSpreadAndRule) {
  auto runs = toy_sweep();
  const auto tasks = group_runs(runs);
  const std::string text = training_table(tasks[0]).text();
  EXPECT_THAT(text, HasSubstr("81.50 ± 0.71 %"));
  EXPECT_THAT(text, HasSubstr("91.50 ± 0.71 %"));
  EXPECT_THAT(text, HasSubstr(learning_rate_rule()));
  EXPECT_THAT(text, testing::ContainsRegex("allreduce +0.05 .* 40 s +640 kB +30.0 % +0 +2\n"));
  EXPECT_THAT(learning_rate_table(tasks[0]).text(),
              testing::ContainsRegex("allreduce +0.1 +10.00 ± 0.00 % +2 \\(2 diverged\\)\n"));
  EXPECT_THAT(run_table(runs).text(), HasSubstr("diverged  starling train --method allreduce --seed 2"));
  EXPECT_THAT(settings_table(runs).text(), testing::ContainsRegex("method +dsgd-awc, allreduce\n"));
}

}  // namespace
}  // namespace starling::report
