#pragma once

#include <map>
#include <mutex>

#include "starling/kernel/cuda/cuda_arithmetic.h"
#include "starling/kernel/cuda/cuda_codec_kernels.h"
#include "starling/kernel/device.h"

namespace starling::kernel::cuda {

/// The GPUs of this process, through CUDA's driver and runtime. Call load_driver() and set_context_function()
/// first.
class CudaDevice final : public Device {
 public:
  /// Throws Error if there is no GPU, or none that this build supports.
  CudaDevice();

  std::string version() const override;
  std::vector<DeviceInfo> devices() const override;

  /// Allocates on the calling thread's device.
  SharedMemory create_shared(std::size_t bytes) override;
  /// Maps memory, perhaps of another device, for the calling thread's device.
  void* map_shared(Descriptor descriptor, std::size_t bytes) override;
  void release_shared(void* address, std::size_t bytes) noexcept override;

  void register_flags(void* memory, std::size_t bytes) override;
  void unregister_flags(void* memory) noexcept override;
  void wait(const Flag& flag, std::uint32_t number) override;
  void write(Flag& flag, std::uint32_t number) override;

  Stream new_stream() override;
  void order_after(const DeviceContext& other) override;
  void synchronize() override;
  std::string failure() const override;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void copy_to_device(void* device, const void* host, std::size_t bytes) override;
  std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) override;

  bool capturing() const override;
  Moment mark_moment() override;
  bool reached(const Moment& moment) override;
  double seconds_between(const Moment& begin, const Moment& end) override;

  const Arithmetic& arithmetic() const override { return arithmetic_; }
  const CodecKernels* codec_kernels() const override { return &codec_kernels_; }

 private:
  CudaArithmetic arithmetic_;
  CudaCodecKernels codec_kernels_;
  std::mutex mutex_;
  std::map<void*, int> registered_;  // flags, and the device that they were registered with
};

}  // namespace starling::kernel::cuda
