#include "starling/report/training_charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/toy_runs.h"

namespace starling::report {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

class TrainingCharts : public testing::Test {
 protected:
  const std::vector<RunTask::Member>& entries(std::vector<RunLog> runs) {
    runs_ = std::move(runs);
    tasks_ = group_runs(runs_);
    return entries_ = tasks_[0].entries();
  }

 private:
  std::vector<RunLog> runs_;
  std::vector<RunTask> tasks_;
  std::vector<RunTask::Member> entries_;
};

TEST_F(TrainingCharts, ViewsDifferByX) {
  const RunLog run = toy_run({"dsgd-awc", "ring", 0.05, 1, 0.9, 2});
  const auto charts = loss_charts(entries({run}));
  ASSERT_EQ(charts.size(), 3U);
  const std::vector<std::string> labels = {"step", "seconds", "bytes sent"};
  const std::vector<double> first = {10, 2, 32000}, last = {200, 40, 640000};
  for (std::size_t view = 0; view < 3; ++view) {
    EXPECT_EQ(charts[view].x_label, labels[view]);
    ASSERT_EQ(charts[view].series.size(), 2U);  // training and test
    EXPECT_EQ(charts[view].series[0].x.front(), first[view]);
    EXPECT_EQ(charts[view].series[0].x.back(), last[view]);
    EXPECT_EQ(charts[view].series[0].y.back(), run.reports.back().loss);
    EXPECT_THAT(charts[view].series[1].y, ElementsAre(DoubleNear(0.3, 1e-12), DoubleNear(0.1, 1e-12)));
  }
}

TEST_F(TrainingCharts, ConstantQuantitiesHaveNoView) {
  RunLog alone = toy_run({});
  for (RunReport& report : alone.reports) report.bytes_sent = 0;
  EXPECT_EQ(loss_charts(entries({alone})).size(), 2U);
}

TEST_F(TrainingCharts, AccuraciesArePercent) {
  const auto one = accuracy_charts(entries({toy_run({})}));
  ASSERT_EQ(one[0].series.size(), 5U);
  // The mean model on the test samples and on the workers' samples; then mean, best and worst of the workers.
  const std::vector<double> ends = {90, 91, 88, 93, 85};
  for (std::size_t line = 0; line < 5; ++line) EXPECT_NEAR(one[0].series[line].y.back(), ends[line], 1e-9);
  RunLog older = toy_run({});
  for (RunReport& report : older.reports) report.local_mean_accuracy.reset();
  EXPECT_EQ(accuracy_charts(entries({older}))[0].series.size(), 4U);
  const auto two = accuracy_charts(entries({toy_run({"a"}), toy_run({"b"})}));
  ASSERT_EQ(two[0].series.size(), 2U);
  EXPECT_EQ(two[0].series[1].name, "b");
}

TEST_F(TrainingCharts, EqualModelsKeepTheirPlaceWithoutALine) {
  const auto charts = distance_charts(entries({toy_run({"allreduce"}), toy_run({"dsgd-awc"})}));
  ASSERT_EQ(charts[0].series.size(), 2U);
  EXPECT_THAT(charts[0].series[0].x, IsEmpty());
  EXPECT_EQ(charts[0].series[1].y.size(), 20U);
  EXPECT_THAT(distance_charts(entries({toy_run({"allreduce"})})), IsEmpty());
}

TEST_F(TrainingCharts, SplitsTimeIntoComputingWaitingCombining) {
  const BarChart chart = time_chart(entries({toy_run({"a"}), toy_run({"b", "ring", 0.05, 1, 0.9, 2})}));
  EXPECT_THAT(chart.rows, ElementsAre("a", "b"));
  ASSERT_EQ(chart.parts.size(), 3U);
  EXPECT_EQ(chart.parts[0].name, "computing");
  EXPECT_THAT(chart.parts[0].values, ElementsAre(10, 20));
  EXPECT_THAT(chart.parts[1].values, ElementsAre(6, 12));
  EXPECT_THAT(chart.parts[2].values, ElementsAre(4, 8));
}

}  // namespace
}  // namespace starling::report
