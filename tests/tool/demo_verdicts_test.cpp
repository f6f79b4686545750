#include "tool/torch/demo_verdicts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// The demo reports what its runs show, good or bad.
namespace starling::tool {
namespace {

using testing::HasSubstr;

RunLog run_with(double accuracy, double seconds) {
  RunLog run;
  run.header.workers = 4;
  RunReport report;
  report.seconds = seconds;
  report.workers = 4;
  report.test_accuracy = accuracy;
  run.reports = {report};
  return run;
}

TEST(DemoVerdicts, AccuraciesAreTheSameWithinTwoStandardErrors) {
  const Verdict same = accuracy_verdict(run_with(0.985, 10), run_with(0.988, 12), 10000);
  EXPECT_EQ(same.claim, "The same accuracy as all-reduce");
  EXPECT_THAT(same.evidence, HasSubstr("98.50 % against 98.80 % (±0.33 points are chance)"));
  EXPECT_FALSE(same.bad);
  const Verdict worse = accuracy_verdict(run_with(0.95, 10), run_with(0.988, 12), 10000);
  EXPECT_EQ(worse.claim, "Less accurate than all-reduce");
  EXPECT_TRUE(worse.bad);
  const Verdict better = accuracy_verdict(run_with(0.99, 10), run_with(0.95, 12), 10000);
  EXPECT_EQ(better.claim, "More accurate than all-reduce");
  EXPECT_FALSE(better.bad);
  // With few samples, small differences mean nothing.
  EXPECT_EQ(accuracy_verdict(run_with(0.95, 1), run_with(0.988, 1), 100).claim,
            "The same accuracy as all-reduce");
}

TEST(DemoVerdicts, ReadsTheDeathFromTheLog) {
  RunLog killed = run_with(0.98, 11);
  EXPECT_EQ(death_verdict(killed, run_with(0.98, 10), 1, 10000).claim, "No worker died");
  EXPECT_TRUE(death_verdict(killed, run_with(0.98, 10), 1, 10000).bad);
  killed.lost = {{470, 1}};
  killed.reports.back().workers = 3;
  const Verdict fine = death_verdict(killed, run_with(0.98, 10), 1, 10000);
  EXPECT_EQ(fine.claim, "A killed worker costs no accuracy");
  EXPECT_THAT(fine.evidence,
              HasSubstr("worker 1 died by step 470, and 3 of 4 continued to the end. The accuracy was "));
  EXPECT_TRUE(death_verdict(killed, run_with(0.999, 10), 1, 10000).bad);
}

TEST(DemoVerdicts, ReportsHowLongOthersWaitedForASlowWorker) {
  const SlowWorkerRun all_reduce{9, 0.7, 0.97, 200, 200};
  const Verdict fine = slow_worker_verdict(all_reduce, {3, 0.01, 0.968, 246, 62}, 4, 4, 10000);
  EXPECT_THAT(fine.claim, HasSubstr("keeps nobody waiting, 3.0x as fast as all-reduce"));
  EXPECT_THAT(fine.evidence, HasSubstr("waited 70 % of the time in all-reduce and 1 % in"));
  EXPECT_THAT(fine.evidence, HasSubstr("All-reduce took 9 s for the batches that ad-psgd did in 3 s"));
  EXPECT_FALSE(fine.bad);
  const Verdict bad = slow_worker_verdict(all_reduce, {12, 0.8, 0.968, 200, 200}, 4, 4, 10000);
  EXPECT_THAT(bad.claim, HasSubstr("slows the others down, 0.8x as fast as all-reduce"));
  EXPECT_TRUE(bad.bad);
}

}  // namespace
}  // namespace starling::tool
