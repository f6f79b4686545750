#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <functional>
#include <tuple>
#include <utility>

// A stand-in for CUDA's runtime and for CUDA's additions to C++: kernels are functions, and the threads of a
// launch run one after the other. See machine.h.

// Vectors are aligned as on a GPU, where a misaligned access is an error; UBSan detects it here.
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct uint3 {
  unsigned x, y, z;
};

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(threads)
#define __shared__ static

struct dim3 {
  explicit dim3(unsigned x_ = 1) : x(x_) {}
  unsigned x, y = 1, z = 1;
};

inline thread_local uint3 threadIdx, blockIdx, blockDim;

template <typename T>
T __ldcs(const T* from) {
  return *from;
}
template <typename T>
void __stcs(T* to, T value) {
  *to = value;
}
template <typename T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to = before + value;
  return before;
}

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorInvalidDevice = 101,
  cudaErrorDeviceUninitialized = 201,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorStreamCaptureWrongThread = 908
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeRelaxed = 2 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
enum cudaMemAllocationType { cudaMemAllocationTypePinned = 1 };
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };
enum cudaMemPoolAttr { cudaMemPoolReuseAllowInternalDependencies = 3, cudaMemPoolAttrReleaseThreshold = 4 };
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaMemAttachGlobal = 1;
inline constexpr unsigned cudaHostAllocPortable = 1;
inline constexpr unsigned cudaHostAllocMapped = 2;

using cudaStream_t = CUstream;
using cudaEvent_t = struct CUevent_st*;
using cudaMemPool_t = struct CUmemPoolHandle_st*;
using cudaHostFn_t = void (*)(void*);
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(2))  // NOLINT

struct cudaFuncAttributes {};
struct cudaMemPoolProps {
  cudaMemAllocationType allocType;
  struct {
    cudaMemLocationType type;
    int id;
  } location;
};

extern "C" {
cudaError_t cudaGetLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned flags);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMallocFromPoolAsync(void** memory, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument);
cudaError_t cudaLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** arguments,
                             std::size_t shared, cudaStream_t stream);
}

namespace fake_cuda {

/// Launches a kernel with the arguments at these addresses, which it copies.
using Launcher = std::function<std::function<void()>(void** arguments)>;
/// Loads a kernel into the current context.
cudaError_t load_kernel(const void* kernel, Launcher launcher);
/// Whether the current kernel has run for all threads of its block.
inline thread_local bool ran_in_phases = false;

}  // namespace fake_cuda

template <typename... Arguments>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, void (*kernel)(Arguments...)) {
  const auto launcher = [kernel](void** arguments) -> std::function<void()> {
    return [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
      return [kernel, values = std::tuple(*static_cast<Arguments*>(arguments[kIndex])...)] {
        std::apply(kernel, values);
      };
    }
    (std::index_sequence_for<Arguments...>());
  };
  return fake_cuda::load_kernel(reinterpret_cast<const void*>(kernel), launcher);
}

namespace starling::kernel::cuda {

// See kernel/cuda/phases.cuh.
template <typename Body>
void each_thread(const Body& body) {
  fake_cuda::ran_in_phases = true;
  for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) body();
  threadIdx.x = 0;
}
template <typename Body>
void each_thread_alone(const Body& body) {
  each_thread(body);
}

template <typename T>
class OfEveryThread {
 public:
  T& operator()() { return values_[threadIdx.x]; }

 private:
  T values_[1024];
};
template <typename T>
using OfThread = OfEveryThread<T>;

inline void warp_range(OfThread<unsigned>& least, OfThread<unsigned>& greatest) {
  for (unsigned warp = 0; warp < blockDim.x; warp += 32) {
    unsigned low = ~0U, high = 0;
    for (threadIdx.x = warp; threadIdx.x < warp + 32; ++threadIdx.x)
      low = std::min(low, least()), high = std::max(high, greatest());
    for (threadIdx.x = warp; threadIdx.x < warp + 32; ++threadIdx.x) least() = low, greatest() = high;
  }
  threadIdx.x = 0;
}

}  // namespace starling::kernel::cuda
