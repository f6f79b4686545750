#include "starling/kernel/cuda/cuda_device.h"

#include <array>
#include <cstring>
#include <gmock/gmock.h>
#include <thread>
#include <unistd.h>

#include "cuda_test.h"
#include "starling/base/error.h"

namespace starling::kernel::cuda {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST_F(CudaDeviceTest, DescribesItsDevices) {
  EXPECT_EQ(device_.version(), "CUDA driver 13.1, runtime 13.0");
  const std::vector<DeviceInfo> all = device_.devices();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].name, "Fake GPU 1");
  EXPECT_EQ(all[1].bytes, fake_cuda::kMemory);
  EXPECT_EQ(all[1].bytes_free, fake_cuda::kMemory);
  EXPECT_EQ(all[1].peers, "0");
  fake_cuda::set_peer_access(false);
  EXPECT_EQ(device_.devices()[0].peers, "");
}

CUcontext context() {
  CUcontext found = nullptr;
  cuCtxGetCurrent(&found);
  return found;
}

TEST_F(CudaDeviceTest, LeavesTheThreadsContextAsItWas) {
  std::vector<float> x(10, 1);
  arithmetic_.scale(device_buffer(x), 2);
  EXPECT_EQ(context(), nullptr);
  CUcontext other = nullptr;
  cuDevicePrimaryCtxRetain(&other, 1);
  cuCtxSetCurrent(other);
  arithmetic_.scale(device_buffer(x), 2);
  (void)device_.devices();
  EXPECT_THROW(device_.wait(flags_[0], kLost), InvalidArgument);
  fake_cuda::fail_next("cuStreamWaitValue32", CUDA_ERROR_INVALID_VALUE);
  EXPECT_THROW(device_.wait(flags_[0], 1), Error);
  EXPECT_EQ(context(), other);
  cuCtxSetCurrent(nullptr);
  device_.synchronize();
  EXPECT_EQ(x[9], 4);
}

TEST_F(CudaDeviceTest, FailsForGoodWithAnErrorThatStays) {
  EXPECT_EQ(device_.failure(), "");
  fake_cuda::fail_next("cudaStreamQuery", cudaErrorNotReady);
  EXPECT_EQ(device_.failure(), "");
  fake_cuda::fail_next("cudaStreamQuery", cudaErrorStreamCaptureUnsupported);  // a graph is being captured
  EXPECT_EQ(device_.failure(), "");
  fake_cuda::fail_next("cudaStreamQuery", cudaErrorIllegalAddress);
  EXPECT_THAT(device_.failure(), HasSubstr("cudaErrorIllegalAddress"));
}

TEST_F(CudaDeviceTest, WorksOnTheThreadsStream) {
  std::vector<float> x(100, 1), y(100, 1);
  const DeviceContext blocked{0, new_stream()};
  {
    const DeviceScope scope(blocked);
    device_.wait(flags_[0], 1);
    arithmetic_.scale(device_buffer(x), 2);
  }
  arithmetic_.scale(device_buffer(y), 2);
  EXPECT_EQ(y[99], 1) << "calls return at once";
  device_.synchronize();
  fake_cuda::run_streams();
  EXPECT_EQ(y[99], 2);
  EXPECT_EQ(x[99], 1);
  flags_[0] = 1;
  const DeviceScope scope(blocked);
  device_.synchronize();
  EXPECT_EQ(x[99], 2);
}

TEST_F(CudaDeviceTest, WorksOnTheThreadsDevice) {
  std::vector<float> x(100, 1);
  const DeviceContext second{1, new_stream(1)};
  EXPECT_THAT(
      [&] {
        const DeviceScope scope({0, second.stream});
        arithmetic_.scale(device_buffer(x), 2);
      },
      ThrowsMessage<Error>(HasSubstr("CUDA: cudaLaunchKernel: cudaErrorInvalidResourceHandle")));
  const DeviceScope scope(second);
  arithmetic_.scale(device_buffer(x), 2);
  device_.synchronize();
  EXPECT_EQ(x[99], 2);
  EXPECT_THAT(
      [&] {
        const DeviceScope third({2, nullptr});
        device_.synchronize();
      },
      ThrowsMessage<InvalidArgument>("there is no CUDA device 2; this process has 2, numbered from 0"));
}

TEST_F(CudaDeviceTest, AWaitEndsWhenTheWriterIsLost) {
  flags_[0] = 3;
  device_.wait(flags_[0], 9);
  fake_cuda::run_streams();
  EXPECT_EQ(fake_cuda::pending(), 1U);
  flags_[0].fetch_or(kLost);
  device_.synchronize();
  EXPECT_EQ(flags_[0].load(), 3 | kLost);
}

TEST_F(CudaDeviceTest, WritesAFlagAfterEarlierWork) {
  std::vector<float> x(1000, 1);
  device_.wait(flags_[0], 1);
  arithmetic_.scale(device_buffer(x), 2);
  device_.write(flags_[1], 7);
  fake_cuda::run_streams();
  EXPECT_EQ(flags_[1].load(), 0U);
  flags_[0] = 1;
  fake_cuda::run_streams();
  EXPECT_EQ(flags_[1].load(), 7U);
  EXPECT_EQ(x[999], 2);
}

TEST_F(CudaDeviceTest, OrderAfterOrdersStreamsAndDevices) {
  for (const int device : {0, 1}) {
    const DeviceContext first{0, new_stream()};
    const DeviceContext second{device, new_stream(device)};
    std::vector<float> x(1000, 1), one(1000, 1);
    for (int i = 0; i < 10; ++i) {
      {
        const DeviceScope scope(first);
        device_.order_after(second);
        arithmetic_.scale(device_buffer(x), 2);
      }
      const DeviceScope scope(second);
      device_.order_after(first);
      arithmetic_.reduce(Reduction::sum, device_buffer(x), device_buffer(one));
    }
    device_.order_after(second);
    device_.order_after({0, nullptr});
    device_.synchronize();
    EXPECT_EQ(x, std::vector<float>(1000, 2047));
  }
}

TEST_F(CudaDeviceTest, TakesTheTimeBetweenMoments) {
  std::vector<float> x(1000, 1);
  const DeviceScope second({1, nullptr});
  const DeviceScope scope({1, device_.new_stream()});
  const Device::Moment begin = device_.mark_moment();
  arithmetic_.scale(device_buffer(x), 2);
  const Device::Moment end = device_.mark_moment();
  EXPECT_EQ(x[999], 1) << "marks are enqueued";
  EXPECT_FALSE(device_.reached(end));
  EXPECT_GT(device_.seconds_between(begin, end), 0);
  EXPECT_EQ(x[999], 2);
  EXPECT_LT(device_.seconds_between(end, begin), 0);
  EXPECT_TRUE(device_.reached(end));
  fake_cuda::fail_next("cudaEventQuery", cudaErrorInvalidValue);
  EXPECT_THROW(device_.reached(end), Error);
  fake_cuda::fail_next("cudaEventRecord", cudaErrorInvalidValue);
  EXPECT_THROW(device_.mark_moment(), Error);
}

TEST_F(CudaDeviceTest, KnowsWhichStreamsAreCaptured) {
  EXPECT_FALSE(device_.capturing());
  fake_cuda::captured = static_cast<cudaStream_t>(new_stream());
  EXPECT_TRUE(device_.capturing()) << "the default stream, meanwhile";
  const DeviceScope other({0, new_stream()});
  EXPECT_FALSE(device_.capturing());
  {
    const DeviceScope scope({0, fake_cuda::captured});
    EXPECT_TRUE(device_.capturing());
  }
  fake_cuda::captured = nullptr;
}

TEST_F(CudaDeviceTest, CopiesBetweenHostAndDevice) {
  std::vector<float> host = {1, 2, 3}, on_gpu(3), back(3);
  device_.copy_to_device(on_gpu.data(), host.data(), 12);
  device_.copy_to_host(back.data(), on_gpu.data(), 12);
  device_.copy_to_host(nullptr, nullptr, 0);
  device_.synchronize();
  EXPECT_EQ(back, host);

  const std::shared_ptr<std::byte> pinned = device_.allocate_pinned(12);
  device_.copy_to_host(pinned.get(), on_gpu.data(), 12);
  const Device::Moment copied = device_.mark_moment();
  fake_cuda::run_streams();
  EXPECT_TRUE(device_.reached(copied));
  EXPECT_EQ(std::memcmp(pinned.get(), host.data(), 12), 0);
}

TEST_F(CudaDeviceTest, RefusesFlagsThatAreNotRegistered) {
  Flag elsewhere = 0;
  EXPECT_THAT([&] { device_.wait(elsewhere, 1); },
              ThrowsMessage<Error>(HasSubstr("CUDA: cuStreamWaitValue32: CUDA_ERROR_INVALID_VALUE")));
  EXPECT_THAT([&] { device_.write(elsewhere, 1); }, ThrowsMessage<Error>(HasSubstr("cuStreamWriteValue32")));
  EXPECT_THAT([&] { device_.register_flags(&flags_[1], sizeof(Flag)); },
              ThrowsMessage<Error>(HasSubstr("CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED")));
  const DeviceScope scope({1, nullptr});
  device_.register_flags(&elsewhere, sizeof elsewhere);
  device_.write(elsewhere, 1);
  device_.synchronize();
  EXPECT_EQ(elsewhere.load(), 1U);
  device_.unregister_flags(&elsewhere);
  device_.unregister_flags(&elsewhere);
  EXPECT_THROW(device_.write(elsewhere, 2), Error);
  fake_cuda::fail_next("cuMemHostGetDevicePointer", CUDA_ERROR_INVALID_VALUE);
  EXPECT_THROW(device_.register_flags(&elsewhere, sizeof elsewhere), Error);
  EXPECT_THROW(device_.write(elsewhere, 2), Error);
}

// Ranks average their vectors: slot k mod 2 of step k is written once both ranks have read step k - 2.
TEST_F(CudaDeviceTest, ThreadsExchangeThroughSharedMemory) {
  constexpr std::uint32_t kSteps = 40;
  constexpr std::size_t kCount = 1024;
  std::array<std::vector<float>, 2> x{std::vector<float>(kCount, 0), std::vector<float>(kCount, 1)};
  std::array<std::vector<float>, 2> pull{std::vector<float>(kCount, 1), std::vector<float>(kCount, 3)};
  std::array<Device::SharedMemory, 2> own;
  std::array<DeviceContext, 2> contexts;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    contexts[rank] = {static_cast<int>(rank), new_stream(static_cast<int>(rank))};
    const DeviceScope scope(contexts[rank]);
    own[rank] = device_.create_shared(2 * kCount * sizeof(float));
  }
  const auto rank_body = [&](std::size_t rank) {
    const DeviceScope scope(contexts[rank]);
    const Device::SharedMemory& theirs = own[1 - rank];
    void* mapped = device_.map_shared(Descriptor(dup(theirs.descriptor.get())), theirs.bytes);
    Flag* mine = &flags_[2 * rank];  // ready, done
    Flag* peers = &flags_[2 * (1 - rank)];
    for (std::uint32_t k = 1; k <= kSteps; ++k) {
      auto* slot = static_cast<float*>(own[rank].address) + k % 2 * kCount;
      if (k > 2) device_.wait(peers[1], k - 2);
      const Buffer block = device_buffer(x[rank]);
      arithmetic_.copy(block.at(static_cast<void*>(slot)), block);
      device_.write(mine[0], k);
      Term message{ConstBuffer(DType::float32, static_cast<const float*>(mapped) + k % 2 * kCount, kCount,
                               MemoryKind::cuda, {}),
                   0.5};
      message.flag = &peers[0];
      message.number = k;
      arithmetic_.combine(block, std::array{Term(ConstBuffer(block), 0.5), message});
      device_.write(mine[1], k);
      arithmetic_.reduce(Reduction::sum, block, device_buffer(pull[rank]));
    }
    device_.synchronize();
    device_.release_shared(mapped, theirs.bytes);
  };
  std::thread other([&] { rank_body(1); });
  rank_body(0);
  other.join();

  float left = 0, right = 1;
  for (std::uint32_t k = 1; k <= kSteps; ++k) {
    const float mean = (left + right) / 2;
    left = mean + 1;
    right = mean + 3;
  }
  EXPECT_EQ(x[0], std::vector<float>(kCount, left));
  EXPECT_EQ(x[1], std::vector<float>(kCount, right));
  for (const Device::SharedMemory& memory : own) device_.release_shared(memory.address, memory.bytes);
  EXPECT_EQ(fake_cuda::handles() + fake_cuda::ranges(), 0U);
}

}  // namespace
}  // namespace starling::kernel::cuda
