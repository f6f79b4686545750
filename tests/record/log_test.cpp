#include "starling/record/log.h"

#include <gtest/gtest.h>

#include "record/folder.h"
#include "starling/base/error.h"

namespace starling::record {
namespace {

TEST(LogTest, ReadsTheLevelFromTheEnvironment) {
  const auto said = [](const char* value) {
    const Variable level("STARLING_LOG", value);
    read_log_level();
    testing::internal::CaptureStderr();
    log(LogLevel::normal, "n");
    log(LogLevel::debug, "d");
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said("quiet"), "");
  EXPECT_EQ(said("normal"), "starling: n\n");
  EXPECT_EQ(said(""), "starling: n\n");
  EXPECT_EQ(said("debug"), "starling: n\nstarling: d\n");
  try {
    said("loud");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "STARLING_LOG=loud is invalid; valid: quiet, normal, info, debug");
  }
  read_log_level();
}

}  // namespace
}  // namespace starling::record
