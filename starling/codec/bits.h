#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "starling/base/floors.h"

namespace starling::codec {

/// Packs the low `bits` (2 .. 16) bits of each code, starting with the lowest bit of the first byte. Writes
/// multiples of 8 bytes.
void pack_bits(std::span<const std::int16_t> codes, unsigned bits, std::byte* out);

/// Unpacks codes whose highest bit is the sign. Reads multiples of 8 bytes.
void unpack_bits(const std::byte* in, unsigned bits, std::span<std::int16_t> codes);

}  // namespace starling::codec
