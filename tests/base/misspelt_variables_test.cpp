#include "starling/base/misspelt_variables.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(MisspeltVariables, AreThoseThatAreCloseToOurs) {
  setenv("STARLING_TIMOUT", "3", 1);
  setenv("STARLING_OF_SOMEBODY_ELSE", "3", 1);
  setenv("TIMEOUT", "3", 1);
  EXPECT_THAT(
      misspelt_variables(),
      testing::ElementsAre("STARLING_TIMOUT is set, which is not a variable of Starling (did you mean "
                           "STARLING_TIMEOUT?)"));
  for (const char* name : {"STARLING_TIMOUT", "STARLING_OF_SOMEBODY_ELSE", "TIMEOUT"}) unsetenv(name);
}

}  // namespace
}  // namespace starling
