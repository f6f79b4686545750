#include "starling/kernel/target.h"

#include <gmock/gmock.h>

#include "starling/base/error.h"

namespace starling::kernel {
namespace {

TEST(TargetTest, TheBestIsUsedUnlessATestAsksForAnother) {
  const std::vector<Target> available = available_targets();
  ASSERT_FALSE(available.empty());
  EXPECT_EQ(available.front(), Target::baseline);
  EXPECT_EQ(current_target(), available.back());
  for (const Target target : available) {
    use_target(target);
    EXPECT_EQ(current_target(), target);
  }
}

TEST(TargetTest, AMissingOneIsRefused) {
  EXPECT_THAT([] { use_target(static_cast<Target>(9)); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("target 9")));
}

}  // namespace
}  // namespace starling::kernel
