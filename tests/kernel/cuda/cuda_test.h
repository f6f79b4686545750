#pragma once

#include <array>
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "blocks.h"
#include "machine.h"
#include "starling/kernel/cuda/cuda_device.h"
#include "starling/kernel/cuda/driver.h"
#include "starling/kernel/cuda/on_device.h"

// What the tests of kernel/cuda/ on the fake CUDA machine share.

namespace starling::kernel::cuda {

/// The device, on the fake machine.
inline CudaDevice& fake_gpu() {
  static CudaDevice& device = *[] {
    std::string why;
    if (!load_driver(&why, nullptr)) throw std::runtime_error(why);
    set_context_function(device_context);
    return new CudaDevice;
  }();
  return device;
}

inline Stream new_stream(int device = 0) {
  fake_gpu();
  const OnDevice on({device, nullptr});
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

/// A vector twice: on the host, and on the device `offset` elements after an aligned address.
template <typename T>
class Twin {
 public:
  Twin(const std::vector<T>& values, std::size_t offset)
      : host_(values), device_(values, offset), count_(values.size()) {}

  Buffer host() { return {dtype_of<T>, host_.data(), count_}; }
  Buffer device() { return {dtype_of<T>, device_.data(), count_, MemoryKind::cuda, nullptr}; }
  /// Whether both have the same bits (or NaNs), and nothing beside the one on the device was written.
  testing::AssertionResult same() {
    if (!device_.guards_stand()) return testing::AssertionFailure() << "writes beside the block";
    return same_blocks(device_.values(), host_);
  }

 private:
  std::vector<T> host_;
  Placed<T> device_;
  std::size_t count_;
};

inline Buffer device_buffer(std::vector<float>& values) {
  return {DType::float32, values.data(), values.size(), MemoryKind::cuda, nullptr};
}

/// Has flags that the device may use.
class CudaDeviceTest : public testing::Test {
 protected:
  CudaDeviceTest() { device_.register_flags(flags_.data(), sizeof flags_); }
  ~CudaDeviceTest() override {
    fake_cuda::set_peer_access(true);
    fake_cuda::run_streams();
    device_.unregister_flags(flags_.data());
  }

  std::array<Flag, 8> flags_{};
  CudaDevice& device_ = fake_gpu();
  const Arithmetic& arithmetic_ = device_.arithmetic();
};

/// Where the blocks of a call lie: all at aligned addresses, all as far after one, or each elsewhere.
enum class Layout { aligned, shifted, scattered };
inline constexpr Layout kLayouts[] = {Layout::aligned, Layout::shifted, Layout::scattered};

inline std::size_t offset_in(Layout layout, std::size_t block) {
  return layout == Layout::aligned ? 0 : layout == Layout::shifted ? 3 : block % 5;
}

}  // namespace starling::kernel::cuda
