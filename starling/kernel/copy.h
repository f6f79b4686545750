#pragma once

#include <cstddef>

#include "starling/base/buffer.h"

namespace starling::kernel {

/// memcpy; what is too large for the cache anyway is written past it, which saves reading the lines that are
/// about to be overwritten. Blocks must not overlap.
void copy_bytes(void* to, const void* from, std::size_t bytes);
/// The bytes of a buffer, in host memory.
inline void copy_bytes(void* to, ConstBuffer from) {
  copy_bytes(to, from.host_data(), from.bytes());
}

}  // namespace starling::kernel
