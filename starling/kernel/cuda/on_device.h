#pragma once

#include <cstddef>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "starling/kernel/cuda/shape.h"
#include "starling/kernel/device.h"

namespace starling::kernel::cuda {

/// Sets the function that returns the calling thread's DeviceContext. It must be the program's: a copy of it
/// in this shared library would have variables of its own.
void set_context_function(DeviceContext& (*context)());
/// The calling thread's DeviceContext.
const DeviceContext& current_context();

/// The number of devices in this process.
int device_count();
/// Whether this process has used the device.
bool is_prepared(int device);

/// Scratch memory on a device that belongs to one stream: work on a stream is in order, so the next kernels
/// that use it run after the last ones that did.
struct Scratch {
  static constexpr int kPartialSums = 1024;
  alignas(64) std::byte plan[1024];  // a PlannedSum, see plan.cuh
  alignas(64) double partial[kPartialSums];
  double sum;
  int nonfinite;
};

/// Makes a device current in the calling thread, and restores the previous one in the end. The first use of a
/// device prepares it: loads kernels and allocates memory. Both may block until the device's streams are
/// idle, and a stream that waits for a flag may wait for this thread.
class OnDevice {
 public:
  /// Uses the thread's device_context().
  OnDevice() : OnDevice(current_context()) {}
  explicit OnDevice(const DeviceContext& context);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  /// The stream's scratch memory, on the device.
  Scratch* scratch() const;
  /// The pool for stream-ordered allocation.
  cudaMemPool_t pool() const;
  /// Launches a kernel with these arguments, in blocks of kBlock threads.
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

/// Work enqueued on `later` from now on waits for the work enqueued on `earlier` so far.
void order(const DeviceContext& earlier, const DeviceContext& later);
/// The stream on which a device frees memory that its other streams have used: it waits for them, so that no
/// other stream and no thread has to.
DeviceContext release_context(int device);

}  // namespace starling::kernel::cuda
