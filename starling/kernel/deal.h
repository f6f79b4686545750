#pragma once

#include <cstddef>
#include <span>

namespace starling {

/// Deals `count` elements of 2, 4 or 8 bytes out in turn: parts[t][i] = from[i * parts.size() + t]. Blocks
/// must not overlap.
void deal(std::span<std::byte* const> parts, const void* from, std::size_t count, std::size_t element);
/// The other way round: `count` elements from all parts in turn.
void undeal(void* to, std::span<std::byte* const> parts, std::size_t count, std::size_t element);

}  // namespace starling
