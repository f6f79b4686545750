#pragma once

#include <cstddef>
#include <memory>

#include "starling/base/floors.h"

// Memory of CudaArithmetic. It may be dropped while work on it is enqueued: it is freed when the work has
// ended that was enqueued, by then, on the stream of its allocation and on that of the thread that drops it.
// Streams outlive the memory that was allocated on them.

namespace starling::kernel::cuda {

/// Zeroed memory of the calling thread's device, in the order of its stream. Throws Error with the bytes
/// needed and free where there is not enough.
std::shared_ptr<void> allocate(std::size_t bytes);

/// A mark for UpdatePass::nonfinite, in host memory that all devices can write.
std::shared_ptr<bool> make_mark();
/// Allocates marks ahead, with a device current.
void prepare_marks();

}  // namespace starling::kernel::cuda
