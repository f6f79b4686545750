#pragma once

#include <cstddef>
#include <span>

namespace starling::kernel {

/// Splits `count` elements of 2, 4 or 8 bytes: parts[t][i] = from[i * parts.size() + t]. Blocks must not
/// overlap.
void deinterleave(std::span<std::byte* const> parts, const void* from, std::size_t count,
                  std::size_t element);
/// The inverse: merges `count` elements of all parts.
void interleave(void* to, std::span<std::byte* const> parts, std::size_t count, std::size_t element);

}  // namespace starling::kernel
