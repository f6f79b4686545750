#pragma once

#include <cstddef>
#include <memory>

#include "starling/base/floors.h"

// Memory of CudaArithmetic. It may be released while work on it is enqueued: it is freed once the work that
// was enqueued by then has ended, both on the stream of its allocation and on the stream of the releasing
// thread. Streams outlive memory that was allocated on them.

namespace starling::kernel::cuda {

/// Allocates zeroed memory on the calling thread's device, in the order of its stream. Throws Error with the
/// bytes needed and the bytes free if there is not enough.
std::shared_ptr<void> allocate(std::size_t bytes);

/// A mark for UpdatePass::nonfinite, in host memory that all devices can write.
std::shared_ptr<bool> make_mark();
/// Allocates marks in advance, while a device is current.
void prepare_marks();

}  // namespace starling::kernel::cuda
