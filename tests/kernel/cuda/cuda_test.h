#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "blocks.h"
#ifndef STARLING_TEST_ON_GPU
#include "machine.h"
#endif
#include "starling/kernel/cuda/cuda_device.h"
#include "starling/kernel/cuda/driver.h"
#include "starling/kernel/cuda/on_device.h"

// Helpers shared by the tests of kernel/cuda/. They run on the fake CUDA machine; tests of kernels also run
// on a real one with STARLING_TEST_ON_GPU (`./run gpu`).

namespace starling::kernel::cuda {

#ifdef STARLING_TEST_ON_GPU
inline constexpr const char* kDriver = "libcuda.so.1";
#else
inline constexpr const char* kDriver = nullptr;  // the symbols are in this program
#endif

/// The device under test.
inline CudaDevice& test_gpu() {
  static CudaDevice& device = *[] {
    std::string why;
    if (!load_driver(&why, kDriver)) throw std::runtime_error(why);
    set_context_function(device_context);
    return new CudaDevice;
  }();
  return device;
}

inline Stream new_stream(int device = 0) {
  test_gpu();
  const OnDevice on({device, nullptr});
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

/// Runs all operations that need not wait: on the fake machine nothing runs by itself.
inline void let_streams_run() {
#ifdef STARLING_TEST_ON_GPU
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
#else
  fake_cuda::run_streams();
#endif
}

/// Memory that the host and the device access at the same address.
template <typename T>
struct DeviceAllocator {
  using value_type = T;
  DeviceAllocator() = default;
  template <typename Other>
  DeviceAllocator(const DeviceAllocator<Other>&) {}  // NOLINT
  bool operator==(const DeviceAllocator&) const = default;

  T* allocate(std::size_t count) {
    test_gpu();
    const OnDevice here({0, nullptr});
    void* memory = nullptr;
    check(cudaMallocManaged(&memory, count * sizeof(T), cudaMemAttachGlobal), "cudaMallocManaged");
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) {
    const OnDevice here({0, nullptr});
    check(cudaFree(memory), "cudaFree");
  }
};
template <typename T>
using DeviceVector = std::vector<T, DeviceAllocator<T>>;

/// A vector on the host, and a copy on the device, `offset` elements after an aligned address.
template <typename T>
class Twin {
 public:
  Twin(const std::vector<T>& values, std::size_t offset)
      : host_(values), device_(values, offset), count_(values.size()) {}

  Buffer host() { return {dtype_of<T>, host_.data(), count_}; }
  Buffer device() { return {dtype_of<T>, device_.data(), count_, MemoryKind::cuda, nullptr}; }
  /// Whether both have the same bits (or NaN), and nothing outside of the device's copy was written.
  testing::AssertionResult same() {
    if (!device_.guards_stand()) return testing::AssertionFailure() << "writes beside the block";
    return same_blocks(device_.values(), host_);
  }

 private:
  std::vector<T> host_;
  Placed<T, DeviceAllocator<unsigned char>> device_;
  std::size_t count_;
};

inline Buffer device_buffer(std::vector<float>& values) {
  return {DType::float32, values.data(), values.size(), MemoryKind::cuda, nullptr};
}

#ifndef STARLING_TEST_ON_GPU
/// Provides flags that the device may use.
class CudaDeviceTest : public testing::Test {
 protected:
  CudaDeviceTest() { device_.register_flags(flags_.data(), sizeof flags_); }
  ~CudaDeviceTest() override {
    fake_cuda::set_peer_access(true);
    fake_cuda::run_streams();
    device_.unregister_flags(flags_.data());
  }

  std::array<Flag, 8> flags_{};
  CudaDevice& device_ = test_gpu();
  const Arithmetic& arithmetic_ = device_.arithmetic();
};
#endif

/// The addresses of a call's blocks: all aligned, all equally far after an aligned address, or each
/// different.
enum class Layout { aligned, shifted, scattered };
inline constexpr Layout kLayouts[] = {Layout::aligned, Layout::shifted, Layout::scattered};

inline std::size_t offset_in(Layout layout, std::size_t block) {
  return layout == Layout::aligned ? 0 : layout == Layout::shifted ? 3 : block % 5;
}

}  // namespace starling::kernel::cuda
