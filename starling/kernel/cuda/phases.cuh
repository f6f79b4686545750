#pragma once

// Kernels whose threads cooperate are written as phases of a block. Without a device compiler, the tests'
// emulation of CUDA defines each_thread() as a loop.

namespace starling::kernel::cuda {

#if defined(__CUDACC__)

/// Runs `body` in every thread of the block and waits for all of them. Only __shared__ variables survive from
/// one phase to the next.
template <typename Body>
__device__ __forceinline__ void each_thread(const Body& body) {
  body();
  __syncthreads();
}

#endif

}  // namespace starling::kernel::cuda
