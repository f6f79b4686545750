#pragma once

#include <cstddef>

namespace starling {

/// memcpy; what is too large for the cache anyway is written past it, which saves reading the lines that are
/// about to be overwritten. Blocks must not overlap.
void copy_bytes(void* to, const void* from, std::size_t bytes);

}  // namespace starling
