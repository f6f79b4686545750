#include "starling/kernel/device.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include "kernel/fake_device.h"
#include "starling/base/error.h"

namespace starling::kernel {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

TEST(DeviceTest, SaysWhyThereIsNone) {
  if (void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    dlclose(driver);
    if (why_no_device().empty()) {
      EXPECT_THAT(device().version(), StartsWith("CUDA driver "));
      EXPECT_FALSE(device().devices().empty());
      return;
    }
  }
  const std::string why = why_no_device();
#ifdef STARLING_HAS_CUDA
  EXPECT_THAT(why, AllOf(HasSubstr("CUDA driver"), testing::Not(HasSubstr("plugin"))));
#else
  EXPECT_THAT(why, AllOf(StartsWith("the plugin for CUDA memory is missing"),
                         HasSubstr("build Starling where CUDA")));
#endif
  EXPECT_EQ(why_no_device(), why) << "the reason lasts";
  EXPECT_THAT([] { device(); }, ThrowsMessage<Error>("CUDA memory cannot be used: " + why));
  EXPECT_THAT([] { (void)arithmetic_in(MemoryKind::cuda); }, ThrowsMessage<Error>(HasSubstr(why)));
}

TEST(DeviceTest, TestsCanReplaceTheDevice) {
  set_device(std::make_shared<FakeDevice>());
  EXPECT_EQ(why_no_device(), "");
  EXPECT_EQ(device().version(), "fake");
  EXPECT_EQ(&arithmetic_in(MemoryKind::cuda), &device().arithmetic());
  set_device(nullptr);
}

TEST(DeviceTest, TheContextIsPerThreadAndScoped) {
  const DeviceContext before = device_context();
  int streams[2];
  {
    const DeviceScope outer({1, &streams[0]});
    const DeviceScope inner({2, &streams[1]});
    EXPECT_EQ(device_context(), (DeviceContext{2, &streams[1]}));
  }
  EXPECT_EQ(device_context(), before);
}

}  // namespace
}  // namespace starling::kernel
