#include "starling/kernel/cuda/device_memory.h"

#include <gtest/gtest.h>
#include <limits>
#include <memory>

#include "cuda_test.h"

namespace starling::kernel::cuda {
namespace {

using DeviceMemoryTest = CudaDeviceTest;

TEST_F(DeviceMemoryTest, FreesMemoryAfterTheWorkOnItsStream) {
  std::vector<float> result(100, 7);
  std::shared_ptr<void> memory = arithmetic_.allocate(400);
  EXPECT_EQ(fake_cuda::pool_bytes(), 400U);
  device_.wait(flags_[0], 1);
  arithmetic_.copy(device_buffer(result), {DType::float32, memory.get(), 100, MemoryKind::cuda, nullptr});
  {
    const DeviceScope elsewhere({0, new_stream()});
    memory.reset();  // does not wait
  }
  fake_cuda::run_streams();
  EXPECT_EQ(result[99], 7);
  EXPECT_EQ(fake_cuda::pool_bytes(), 400U);
  flags_[0] = 1;
  fake_cuda::run_streams();
  EXPECT_EQ(result, std::vector<float>(100)) << "it is zeroed";
  EXPECT_EQ(fake_cuda::pool_bytes(), 0U);
}

// The thread that releases memory may have used it on another stream than that of its allocation.
TEST_F(DeviceMemoryTest, FreesMemoryAfterTheWorkOfTheThreadThatDropsIt) {
  std::shared_ptr<void> memory = arithmetic_.allocate(400);
  fake_cuda::run_streams();
  const DeviceScope scope({0, new_stream()});
  device_.wait(flags_[0], 1);
  arithmetic_.zero({DType::float32, memory.get(), 100, MemoryKind::cuda, nullptr});
  memory.reset();
  fake_cuda::run_streams();
  EXPECT_EQ(fake_cuda::pool_bytes(), 400U);
  flags_[0] = 1;
  fake_cuda::run_streams();
  EXPECT_EQ(fake_cuda::pool_bytes(), 0U);
}

TEST_F(DeviceMemoryTest, MarksAreFreeAfterTheWorkThatSetsThem) {
  std::vector<float> x(20, 1);
  const Term own{ConstBuffer(device_buffer(x)), 1};
  const bool* set = nullptr;
  {
    const std::shared_ptr<bool> mark = arithmetic_.make_mark();
    set = mark.get();
    device_.wait(flags_[0], 1);
    x[3] = std::numeric_limits<float>::quiet_NaN();
    arithmetic_.sgd_update({{&own, 1}, device_buffer(x), 1, device_buffer(x), {}, mark.get()}, {}, {}, true);
  }
  const std::shared_ptr<bool> other = arithmetic_.make_mark();
  EXPECT_NE(other.get(), set);
  flags_[0] = 1;
  fake_cuda::run_streams();
  EXPECT_FALSE(*other);
  const std::shared_ptr<bool> again = arithmetic_.make_mark();
  EXPECT_EQ(again.get(), set);
  EXPECT_FALSE(*again);
}

}  // namespace
}  // namespace starling::kernel::cuda
