#pragma once

// Kernels whose threads cooperate are written as phases of a block. Without a device compiler, the tests'
// emulation of CUDA defines the same as loops over the threads.

namespace starling::kernel::cuda {

#if defined(__CUDACC__)

/// Runs `body` in every thread of the block and waits for all of them. Only __shared__ variables and OfThread
/// survive from one phase to the next.
template <typename Body>
__device__ __forceinline__ void each_thread(const Body& body) {
  body();
  __syncthreads();
}
/// The same without waiting: the next phase uses what the thread itself or its warp_range() has left.
template <typename Body>
__device__ __forceinline__ void each_thread_alone(const Body& body) {
  body();
}

/// A variable of each thread.
template <typename T>
class OfThread {
 public:
  __device__ __forceinline__ T& operator()() { return value_; }

 private:
  T value_;
};

/// Sets both to the least and the greatest one of the thread's warp. All threads of the block call it,
/// between two phases.
__device__ __forceinline__ void warp_range(OfThread<unsigned>& least, OfThread<unsigned>& greatest) {
  least() = __reduce_min_sync(~0U, least());
  greatest() = __reduce_max_sync(~0U, greatest());
}

#endif

}  // namespace starling::kernel::cuda
