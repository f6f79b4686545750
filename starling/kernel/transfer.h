#pragma once

#include "starling/base/buffer.h"

namespace starling::kernel {

/// out <- in, of the same type and length, each in whatever memory. What this thread's stream has been given
/// before is waited for where one of them is on the host; from device to device the copy is enqueued.
void transfer(Buffer out, ConstBuffer in);

}  // namespace starling::kernel
