#include "starling/base/os/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/base/error.h"

namespace starling {
namespace {

TEST(ProgramTest, CapturesOutput) {
  const ProgramRun run =
      run_program({"/bin/sh", "-c", "echo out; echo err >&2; cat"}, std::chrono::seconds(20));
  EXPECT_TRUE(run.succeeded());
  EXPECT_EQ(run.out, "out\n");
  EXPECT_EQ(run.err, "err\n");
}

TEST(ProgramTest, ReportsFailuresAndTimeouts) {
  const ProgramRun failed = run_program({"/bin/sh", "-c", "exit 3"}, std::chrono::seconds(20));
  EXPECT_FALSE(failed.succeeded());
  EXPECT_TRUE(failed.in_time);
  EXPECT_EQ(failed.ending.text(), "exit status 3");
  const ProgramRun slow = run_program({"/bin/sleep", "60"}, std::chrono::seconds(1));
  EXPECT_FALSE(slow.succeeded());
  EXPECT_FALSE(slow.in_time);
  EXPECT_EQ(slow.ending.text(), "SIGTERM");
  EXPECT_THROW(run_program({"/no/such/program"}, std::chrono::seconds(1)), InvalidArgument);
}

TEST(ProgramTest, UsesNoShell) {
  EXPECT_EQ(run_program({"/bin/echo", "$HOME; exit 1", "a  b"}, std::chrono::seconds(20)).out,
            "$HOME; exit 1 a  b\n");
}

TEST(ProgramTest, FindsProgramsInPath) {
  EXPECT_THAT(in_path("sh").value_or(""), testing::EndsWith("/sh"));
  EXPECT_FALSE(in_path("no-such-program-here").has_value());
}

}  // namespace
}  // namespace starling
