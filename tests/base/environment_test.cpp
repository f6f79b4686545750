#include "starling/base/environment.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string_view>

#include "starling/base/error.h"

namespace starling {
namespace {

constexpr EnvironmentVariable kVariable{"STARLING_OF_THIS_TEST", "anything", "none", "Of this test.", ""};

class EnvironmentTest : public testing::Test {
 protected:
  ~EnvironmentTest() override { unsetenv(kVariable.name); }
  static void set(const char* value) { setenv(kVariable.name, value, 1); }
  template <typename Read>
  static std::string refusal(const Read& read) {
    try {
      read();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "nothing was refused";
  }
};

TEST_F(EnvironmentTest, UnsetAndEmptyVariablesHaveNoNumber) {
  EXPECT_FALSE(kVariable.is_set());
  EXPECT_FALSE(kVariable.number(0, 9));
  set("");
  EXPECT_TRUE(kVariable.is_set());
  EXPECT_EQ(kVariable.text(), "");
  EXPECT_FALSE(kVariable.number(0, 9) || kVariable.seconds() || kVariable.bytes());
}

TEST_F(EnvironmentTest, ReadsNumbersSecondsAndBytes) {
  set("7");
  EXPECT_EQ(kVariable.number(0, 9), 7);
  EXPECT_EQ(kVariable.bytes(), 7U);
  EXPECT_EQ(kVariable.seconds(), std::chrono::seconds(7));
  set("0.25");
  EXPECT_EQ(kVariable.seconds(), std::chrono::milliseconds(250));
  EXPECT_EQ(kVariable.assignment("x"), "STARLING_OF_THIS_TEST=x");
}

TEST_F(EnvironmentTest, RefusalsNameTheVariableItsValueAndWhatIsValid) {
  set("10");
  EXPECT_EQ(refusal([] { kVariable.number(0, 9); }),
            "STARLING_OF_THIS_TEST=10 is not a whole number from 0 to 9");
  set("3s");
  EXPECT_EQ(refusal([] { kVariable.number(0, 9); }),
            "STARLING_OF_THIS_TEST=3s is not a whole number from 0 to 9");
  EXPECT_EQ(refusal([] { kVariable.bytes(); }), "STARLING_OF_THIS_TEST=3s is not a number of bytes above 0");
  set("0");
  EXPECT_EQ(refusal([] { kVariable.seconds(); }),
            "STARLING_OF_THIS_TEST=0 is not a number of seconds above 0");
  set("0.25");
  EXPECT_EQ(refusal([] { kVariable.seconds(0.5); }),
            "STARLING_OF_THIS_TEST=0.25 is not a number of seconds, 0.5 or more");
  set("nan");
  EXPECT_NE(refusal([] { kVariable.seconds(); }), "nothing was refused");
}

TEST_F(EnvironmentTest, OwnVariablesComeFirstAndNamesAreUnique) {
  std::set<std::string> names;
  bool foreign = false;
  for (const EnvironmentVariable& variable : environment_variables()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    const bool ours = std::string_view(variable.name).starts_with("STARLING_");
    EXPECT_EQ(ours, *variable.owner == '\0') << variable.name;
    foreign = foreign || !ours;
    EXPECT_EQ(foreign, !ours) << variable.name << " comes after those of others";
  }
  EXPECT_TRUE(foreign);
}

}  // namespace
}  // namespace starling
