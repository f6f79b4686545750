#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "starling/base/floors.h"

namespace starling::codec {

/// The low `bits` (2 .. 16) bits of each code, one after the other from the lowest bit of the first byte on.
/// Writes whole multiples of 8 bytes.
void pack_bits(std::span<const std::int16_t> codes, unsigned bits, std::byte* out);

/// The codes again, their highest bit being the sign. Reads whole multiples of 8 bytes.
void unpack_bits(const std::byte* in, unsigned bits, std::span<std::int16_t> codes);

}  // namespace starling::codec
