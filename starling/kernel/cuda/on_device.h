#pragma once

#include <cstddef>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "starling/kernel/cuda/shape.h"
#include "starling/kernel/device.h"

namespace starling::kernel::cuda {

/// The function that returns the calling thread's DeviceContext: the program's, since a copy of it in this
/// shared object would have variables of its own.
void set_context_function(DeviceContext& (*context)());
/// The calling thread's.
const DeviceContext& current_context();

/// The number of this process's devices.
int device_count();

/// Scratch memory on a device that belongs to one stream: work on a stream is in order, so that the next
/// kernels to use it come after the last ones that did.
struct Scratch {
  static constexpr int kPartialSums = 1024;
  alignas(64) std::byte plan[1024];  // a PlannedSum, see plan.cuh
  alignas(64) double partial[kPartialSums];
  double sum;
  int nonfinite;
};

/// Makes a device current in the calling thread, and puts back in the end what was there before. The first
/// one for a device prepares it: kernels are loaded and memory is allocated, since either may block until the
/// device's streams are idle, and a stream that waits for a flag may wait for this thread.
class OnDevice {
 public:
  /// The thread's device_context().
  OnDevice() : OnDevice(current_context()) {}
  explicit OnDevice(const DeviceContext& context);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  /// The stream's, in device memory.
  Scratch* scratch() const;
  /// The memory that is allocated and freed in the order of streams.
  cudaMemPool_t pool() const;
  /// Launches a kernel whose arguments are these values, in blocks of kBlock threads.
  template <typename... Arguments>
  void launch(void (*kernel)(Arguments...), unsigned blocks, Arguments... values) const {
    void* arguments[] = {&values...};
    launch(reinterpret_cast<const void*>(kernel), blocks, kBlock, arguments);
  }
  /// Launches a kernel in one thread.
  template <typename... Arguments>
  void launch_one(void (*kernel)(Arguments...), Arguments... values) const {
    void* arguments[] = {&values...};
    launch(reinterpret_cast<const void*>(kernel), 1, 1, arguments);
  }

 private:
  void launch(const void* kernel, unsigned blocks, unsigned threads, void** arguments) const;

  int device_;
  cudaStream_t stream_;
  CUcontext before_ = nullptr;
  bool changed_ = false;
};

/// What is given to `later` from now on waits for what has been given to `earlier`.
void order(const DeviceContext& earlier, const DeviceContext& later);
/// The stream on which a device frees what its other streams have used: it waits for them, so that no other
/// stream and no thread has to.
DeviceContext release_context(int device);

}  // namespace starling::kernel::cuda
