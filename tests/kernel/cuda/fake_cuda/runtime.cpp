#include <chrono>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <vector>

#include "machine.h"

using fake_cuda::Machine;

namespace {

// Enqueues on the stream that this handle means for the calling thread.
cudaError_t enqueue(const char* function, cudaStream_t handle, fake_cuda::Operation operation) {
  Machine& machine = Machine::instance();
  if (const int error = machine.take_failure(function); error != 0) return static_cast<cudaError_t>(error);
  if (fake_cuda::current_device() < 0) return cudaErrorDeviceUninitialized;
  CUstream_st* stream = machine.stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  machine.enqueue(stream, std::move(operation));
  return cudaSuccess;
}

void run_block(const std::function<void()>& kernel, unsigned threads) {
  fake_cuda::ran_in_phases = false;
  for (unsigned thread = 0; thread < threads && !fake_cuda::ran_in_phases; ++thread) {
    threadIdx = {thread, 0, 0};
    kernel();
  }
}

}  // namespace

cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorDeviceUninitialized:
      return "cudaErrorDeviceUninitialized";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    default:
      return "cudaErrorInvalidValue";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidDeviceFunction ? "the kernel was not loaded" : "a fake error";
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = fake_cuda::kDevices;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13010;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = Machine::instance().peer_access && device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  Machine& machine = Machine::instance();
  const int device = fake_cuda::current_device();
  if (device < 0) return cudaErrorDeviceUninitialized;
  const std::lock_guard lock(machine.mutex);
  *stream = machine.streams.emplace_back(std::make_unique<CUstream_st>(CUstream_st{device, {}})).get();
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Machine& machine = Machine::instance();
  if (const int error = machine.take_failure("cudaStreamSynchronize"); error != 0)
    return static_cast<cudaError_t>(error);
  CUstream_st* stream = machine.stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  machine.finish(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  return static_cast<cudaError_t>(Machine::instance().take_failure("cudaStreamQuery"));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const int device = fake_cuda::current_device();
  if (device < 0) return cudaErrorDeviceUninitialized;
  *event = new CUevent_st{device, flags != cudaEventDisableTiming,
                          std::make_shared<CUevent_st::Record>(CUevent_st::Record{true})};
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->device != fake_cuda::current_device()) return cudaErrorInvalidResourceHandle;
  event->record = std::make_shared<CUevent_st::Record>();
  event->stream = Machine::instance().stream(stream);
  return enqueue("cudaEventRecord", stream, [record = event->record] {
    *record = {true, std::chrono::steady_clock::now()};
    return true;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return enqueue("cudaStreamWaitEvent", stream, [record = event->record] { return record->happened; });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const int error = Machine::instance().take_failure("cudaEventQuery"); error != 0)
    return static_cast<cudaError_t>(error);
  return event->record->happened ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!event->record->happened) Machine::instance().finish(event->stream);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->times || !end->times) return cudaErrorInvalidResourceHandle;
  if (!begin->record->happened || !end->record->happened) return cudaErrorInvalidValue;
  *milliseconds = std::chrono::duration<float, std::milli>(end->record->when - begin->record->when).count();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return fake_cuda::current_device() < 0 ? cudaErrorDeviceUninitialized : cudaSuccess;
}
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned) {
  *memory = std::malloc(bytes);  // without padding, so that AddressSanitizer detects reads beyond the end
  return fake_cuda::current_device() < 0 ? cudaErrorDeviceUninitialized : cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
  return cudaFree(memory);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(*mode, current);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream != nullptr && stream == fake_cuda::captured ? cudaStreamCaptureStatusActive
                                                               : cudaStreamCaptureStatusNone;
  return stream == nullptr && fake_cuda::captured != nullptr ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** memory, std::size_t bytes, cudaMemPool_t, cudaStream_t stream) {
  const cudaError_t result = enqueue("cudaMallocFromPoolAsync", stream, [] { return true; });
  if (result != cudaSuccess) return result;
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  *memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(*memory, 0xA5, bytes);
  machine.pool[*memory] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return enqueue("cudaFreeAsync", stream, [memory] {
    Machine::instance().pool.erase(memory);
    std::free(memory);
    return true;
  });
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  return enqueue("cudaMemsetAsync", stream, [=] {
    std::memset(memory, value, bytes);
    return true;
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return enqueue("cudaMemcpyAsync", stream, [=] {
    std::memcpy(to, from, bytes);
    return true;
  });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return enqueue("cudaLaunchHostFunc", stream, [=] {
    function(argument);
    return true;
  });
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** arguments, std::size_t,
                             cudaStream_t stream) {
  Machine& machine = Machine::instance();
  std::function<void()> launch;
  {
    const std::lock_guard lock(machine.mutex);
    const auto found = machine.kernels.find({fake_cuda::current_device(), kernel});
    if (found == machine.kernels.end()) return cudaErrorInvalidDeviceFunction;
    launch = found->second(arguments);
  }
  return enqueue("cudaLaunchKernel", stream, [blocks, threads, launch] {
    blockDim = {threads.x, 1, 1};
    for (unsigned block = 0; block < blocks.x; ++block) {
      blockIdx = {block, 0, 0};
      run_block(launch, threads.x);
    }
    return true;
  });
}
