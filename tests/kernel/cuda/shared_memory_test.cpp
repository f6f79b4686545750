#include "starling/kernel/cuda/shared_memory.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>

#include "cuda_test.h"
#include "starling/base/error.h"

namespace starling::kernel::cuda {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

using SharedMemoryTest = CudaDeviceTest;

// The access rights of this process at an address, as in /proc/self/maps.
std::string permissions(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    std::array<char, 5> allowed{};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, allowed.data()) == 3 &&
        begin <= reinterpret_cast<std::uintptr_t>(address) && reinterpret_cast<std::uintptr_t>(address) < end)
      return allowed.data();
  }
  return "none";
}

TEST_F(SharedMemoryTest, SharesMemoryThatPeersRead) {
  Device::SharedMemory memory = device_.create_shared(5000);
  EXPECT_EQ(memory.bytes, fake_cuda::kUnit);
  void* mapped = nullptr;
  {
    const DeviceScope scope({1, nullptr});
    mapped = device_.map_shared(Descriptor(dup(memory.descriptor.get())), memory.bytes);
  }
  EXPECT_EQ(permissions(memory.address), "rw-s");
  EXPECT_EQ(permissions(mapped), "r--s");
  const std::vector<float> values = {1, 2, 3};
  device_.copy_to_device(memory.address, values.data(), 12);
  device_.synchronize();
  device_.release_shared(memory.address, memory.bytes);  // the peer's mapping keeps the memory alive
  const auto* read = static_cast<const float*>(mapped);
  EXPECT_EQ(std::vector<float>(read, read + 3), values);
  EXPECT_EQ(device_.devices()[0].bytes_free, fake_cuda::kMemory - fake_cuda::kUnit);
  device_.release_shared(mapped, memory.bytes);
  EXPECT_EQ(device_.devices()[0].bytes_free, fake_cuda::kMemory);
  EXPECT_EQ(fake_cuda::handles() + fake_cuda::ranges(), 0U);
}

TEST_F(SharedMemoryTest, SaysHowMuchMemoryIsFree) {
  const Device::SharedMemory memory = device_.create_shared(3);
  EXPECT_THAT([&] { device_.create_shared(fake_cuda::kMemory - 5); },
              ThrowsMessage<Error>("the CUDA device has too little memory: 1073741824 bytes are needed, "
                                   "1071644672 of 1073741824 are free"));
  EXPECT_THAT([&] { device_.create_shared(~std::size_t{0}); },
              ThrowsMessage<Error>(HasSubstr("18446744073709551615 bytes are needed")));
  device_.release_shared(memory.address, memory.bytes);
  fake_cuda::fail_next("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation);
  EXPECT_THAT([&] { (void)arithmetic_.allocate(77); },
              ThrowsMessage<Error>(HasSubstr("77 bytes are needed, 1073741824 of 1073741824 are free")));
}

TEST_F(SharedMemoryTest, RefusesMemoryOfDevicesItCannotReach) {
  const Device::SharedMemory memory = device_.create_shared(1);
  fake_cuda::set_peer_access(false);
  {
    const DeviceScope scope({1, nullptr});
    EXPECT_THAT(
        [&] { device_.map_shared(Descriptor(dup(memory.descriptor.get())), memory.bytes); },
        ThrowsMessage<Error>(
            "CUDA device 1 cannot read the memory of device 0: there is no peer access between them"));
  }
  void* mapped = device_.map_shared(Descriptor(dup(memory.descriptor.get())), memory.bytes);
  device_.release_shared(mapped, memory.bytes);
  device_.release_shared(memory.address, memory.bytes);
  device_.release_shared(nullptr, memory.bytes);
}

TEST_F(SharedMemoryTest, LeaksNothingOnFailure) {
  const Device::SharedMemory memory = device_.create_shared(1);
  for (const char* call :
       {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemExportToShareableHandle"}) {
    fake_cuda::fail_next(call, CUDA_ERROR_INVALID_VALUE);
    EXPECT_THAT([&] { device_.create_shared(1); }, ThrowsMessage<Error>(HasSubstr(call)));
    EXPECT_EQ(fake_cuda::handles(), 0U);
    EXPECT_EQ(fake_cuda::ranges(), 1U);
  }
  for (const char* call :
       {"cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    fake_cuda::fail_next(call, CUDA_ERROR_INVALID_VALUE);
    EXPECT_THAT([&] { device_.map_shared(Descriptor(dup(memory.descriptor.get())), memory.bytes); },
                ThrowsMessage<Error>(HasSubstr(call)));
    EXPECT_EQ(fake_cuda::handles(), 0U);
    EXPECT_EQ(fake_cuda::ranges(), 1U);
  }
  device_.release_shared(memory.address, memory.bytes);
  EXPECT_EQ(fake_cuda::ranges(), 0U);
}

}  // namespace
}  // namespace starling::kernel::cuda
