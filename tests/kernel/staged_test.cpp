#include "starling/kernel/staged.h"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "kernel/device_block.h"
#include "kernel/fake_device.h"

namespace starling::kernel {
namespace {

class StagedTest : public testing::Test {
 protected:
  StagedTest() { set_device(std::make_shared<FakeDevice>(FakeDeviceOptions{.seed = 3})); }
  ~StagedTest() override { set_device(nullptr); }
};

TEST_F(StagedTest, HostMemoryIsTakenAsItIs) {
  std::vector<float> values = {1, 2};
  const Staged view(Buffer(DType::float32, values.data(), 2));
  EXPECT_EQ(view.buffer().address(), values.data());
  view.write_back();
}

TEST_F(StagedTest, DeviceMemoryIsCopiedThereAndBack) {
  const DeviceBlock<float> block({1, 2, 3});
  device().arithmetic().scale(block.buffer(), 2);
  const Staged view(block.buffer());
  auto* values = view.buffer().host<float>();
  EXPECT_EQ(std::vector<float>(values, values + 3), (std::vector<float>{2, 4, 6}));
  values[1] = 9;
  EXPECT_EQ(block.values(), (std::vector<float>{2, 4, 6}));
  view.write_back();
  EXPECT_EQ(block.values(), (std::vector<float>{2, 9, 6}));
}

TEST_F(StagedTest, HostMemoryIsCopiedToADevice) {
  std::vector<float> values = {1, 2};
  const Staged view(Buffer(DType::float32, values.data(), 2), MemoryKind::cuda);
  device().arithmetic().scale(view.buffer(), 3);
  view.write_back();
  EXPECT_EQ(values, (std::vector<float>{3, 6}));
}

}  // namespace
}  // namespace starling::kernel
