#pragma once

#include <cstddef>

#include "starling/base/buffer.h"

namespace starling::kernel {

/// memcpy that bypasses the cache for large blocks, which saves reading the lines that are about to be
/// overwritten. Blocks must not overlap.
void copy_bytes(void* to, const void* from, std::size_t bytes);
/// Copies the bytes of a buffer in host memory.
inline void copy_bytes(void* to, ConstBuffer from) {
  copy_bytes(to, from.host_data(), from.bytes());
}

}  // namespace starling::kernel
