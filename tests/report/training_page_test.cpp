#include "starling/report/training_page.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/markup_checker.h"
#include "report/toy_runs.h"
#include "starling/base/error.h"

namespace starling::report {
namespace {

using testing::HasSubstr;
using testing::Not;

const Provenance kTrainingProvenance = {"starling report runs", "1.2.3", "2026-11-16"};

/// The contents of <main> without scripts.
std::string main_of(const std::string& html) {
  const std::size_t start = html.find("<main>");
  std::string body = html.substr(start, html.find("</main>") + 7 - start);
  for (std::size_t at = body.find("<script"); at != std::string::npos; at = body.find("<script"))
    body.erase(at, body.find("</script>", at) + 9 - at);
  return body;
}

std::string page_of(const std::vector<RunLog>& runs) {
  const std::string html = training_page(runs, "", kTrainingProvenance);
  EXPECT_EQ(check_markup(main_of(html)).problem, "");
  return html;
}

TEST(TrainingPage, ShowsAllOfOneRun) {
  const std::string html = page_of({toy_run({"dsgd-awc", "one-peer-exponential"})});
  const CheckedMarkup checked = check_markup(main_of(html));
  EXPECT_EQ(checked.count("canvas"), 4U);  // loss, accuracy, distance, time
  EXPECT_EQ(checked.count("svg"), 1U);
  EXPECT_EQ(checked.count("details"), 0U);
  for (const char* text :
       {"<h1>lenet on mnist</h1>", "<dd>90.00 %</dd>", "<dd>640 kB</dd>", "<dd>20 s</dd>", "<dd>200</dd>",
        "one-peer-exponential on 8 workers", "<code>starling train --method dsgd-awc --seed 1</code>",
        "<td>1.13.1</td>", "<td>2 cores</td>", "<code>starling report runs</code>",
        "Starling 1.2.3 · 2026-11-16", "\"Loss against bytes sent\"", "\"Test accuracy against seconds\"",
        "\"the worst worker's\""})
    EXPECT_THAT(html, HasSubstr(text));
  EXPECT_THAT(html, Not(HasSubstr("has not finished")));
}

TEST(TrainingPage, ReportsDeathsResumesAndDivergence) {
  RunLog run = toy_run({});
  run.end.reset();
  run.resumes = {{100, "starling train --resume", "2026-11-17", "momentum"}};
  run.lost = {{150, 3}};
  run.reports.back().workers = 7;
  const std::string html = page_of({run});
  EXPECT_THAT(html, HasSubstr("The run has not finished. Its last report is of step 200, epoch 2."));
  EXPECT_THAT(html, HasSubstr("Resumed at step 100 on 2026-11-17; reset: momentum."));
  EXPECT_THAT(html, HasSubstr("Worker 3 died at step 150."));
  EXPECT_THAT(html, HasSubstr("--seed 1\nstarling train --resume</code>"));
  EXPECT_THAT(html, HasSubstr("<dd>7 of 8</dd>"));
  run.reports.back().loss = std::nan("");
  EXPECT_THAT(page_of({run}), HasSubstr("The run diverged"));
  run.reports.clear();
  EXPECT_THAT(page_of({run}), HasSubstr("has not reported anything yet"));
}

TEST(TrainingPage, SweepsHaveTablesAndMeans) {
  const std::string html = page_of(toy_sweep());
  const CheckedMarkup checked = check_markup(main_of(html));
  EXPECT_EQ(checked.count("details"), 2U);  // all learning rates, all runs
  EXPECT_EQ(checked.count("canvas"), 4U);
  for (const char* text :
       {"8 runs of lenet on mnist", "81.50 ± 0.71 %", "2 (2 diverged)", "All learning rates",
        "of equal ones the larger", "Every curve is the mean over runs"})
    EXPECT_THAT(html, HasSubstr(text));
  EXPECT_EQ(checked.count("svg"), 1U);
}

TEST(TrainingPage, EqualModelsHaveNoChartOfDistance) {
  const std::string html = page_of({toy_run({"allreduce"})});
  EXPECT_THAT(html, HasSubstr("their consensus distance is 0"));
  EXPECT_EQ(check_markup(main_of(html)).count("svg"), 0U);  // no topology, either
  EXPECT_EQ(check_markup(main_of(html)).count("canvas"), 3U);
}

TEST(TrainingPage, SaysWhatItLeavesOut) {
  RunLog large = toy_run({});
  large.header.workers = 100'000;
  EXPECT_THAT(page_of({large}), HasSubstr("Not drawn: ring on 100000 workers ("));
  EXPECT_THAT(page_of({toy_run({"dsgd-awc", "no-such-topology"})}), HasSubstr("Not drawn: no-such-topology"));
}

TEST(TrainingPage, HostileTextStaysText) {
  RunLog run = toy_run({"</script><script>alert(1)</script>", "<img src=x onerror='alert(2)'>"});
  run.header.command = "starling </code><script>alert(3)</script>";
  run.resumes = {{10, "<b>", "<i>", "<u>"}};
  const std::string html = page_of({run, toy_run({})});
  for (const char* text : {"<img", "<script>alert", "<b>", "<i>", "<u>"})
    EXPECT_THAT(html, Not(HasSubstr(text)));
}

TEST(TrainingPage, ManyCurvesAreTheBest) {
  std::vector<RunLog> runs;
  for (int k = 0; k < 30; ++k)
    runs.push_back(toy_run({"method-" + std::to_string(k), "ring", 0.1, 1, k == 7 ? 0.1 : 0.5 + k / 100.0}));
  const std::string html = page_of(runs);
  EXPECT_THAT(html, HasSubstr("the 24 of 30 with the best accuracy"));
  EXPECT_THAT(html, HasSubstr("\"name\": \"method-29\""));
  EXPECT_THAT(html, HasSubstr("\"name\": \"method-8\""));
  EXPECT_THAT(html, Not(HasSubstr("\"name\": \"method-7\"")));
}

TEST(TrainingPage, IsWrittenForAProgram) {
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / "starling_training_page.html";
  write_training_page({toy_run({})}, "My <title>", path);
  std::ifstream in(path);
  const std::string html((std::istreambuf_iterator<char>(in)), {});
  EXPECT_THAT(html, HasSubstr("<h1>My &lt;title&gt;</h1>"));
  EXPECT_THAT(html, HasSubstr("Made by<code>starling train --method dsgd-awc --seed 1</code>"));
  EXPECT_THAT(html, HasSubstr(" · 2026-11-15"));
  std::filesystem::remove(path);
  EXPECT_THROW(write_training_page({}, "", path), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace starling::report
