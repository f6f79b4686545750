#pragma once

#include "starling/base/buffer.h"

namespace starling::kernel {

/// out <- in, of the same type and length, each in any kind of memory. If one of them is on the host, waits
/// for the work enqueued on this thread's stream; from device to device the copy is enqueued.
void transfer(Buffer out, ConstBuffer in);

}  // namespace starling::kernel
