#pragma once

#include <cstddef>
#include <cstdint>

#include "starling/kernel/code_rules.h"
#include "starling/kernel/store.h"

// What codecs do with every element. The bits are the same on every instruction set and for every alignment.
// Chunks are short, so who says Store::streaming also says finish_streaming() after the last of them.

namespace starling::kernel {

/// Of at least one value. Both are NaN where a value is; zeros count as +0.
ValueRange value_range(const float* in, std::size_t count);

/// min(rint(x scale), upper) - lower, held to 0 .. 255. Where the range or `upper` is not finite (which a
/// nearly constant run beyond 1e29 makes it), the codes are 255.
void quantize_uint8(const float* in, std::size_t count, ValueRange range, std::uint8_t* out);

/// (q + lower) / scale. NaN where greatest - least is not finite, infinite where only `upper` is not.
void dequantize_uint8(const std::uint8_t* in, std::size_t count, ValueRange range, float* out,
                      Store store = Store::cached);

/// One bit per element, the first in the lowest bit, 1 for what is below zero (a NaN is not); the last byte
/// is filled with 0. Returns the sum of |x|: 64 sums in float32 over at most 4096 elements, added up in
/// float64.
double pack_signs(const float* in, std::size_t count, std::uint8_t* bits);

/// -scale where the bit is 1, else scale.
void unpack_signs(const std::uint8_t* bits, std::size_t count, float scale, float* out,
                  Store store = Store::cached);

/// Elements `first` .. first + count of the endless row of 32-bit numbers that `key` has. `first` is a
/// multiple of 64. In group g of 64 numbers, j and j + 32 come from the Philox block of counter {16 g + (j
/// mod 32) / 2, and the rest zeros}: words j mod 2, and 2 + j mod 2.
void random_words(std::uint64_t key, std::size_t first, std::size_t count, std::uint32_t* out);

/// Stochastic rounding of |x| scale to 0 .. levels, up with the probability of the fraction (random / 2^32 <
/// fraction, of which 24 bits count), with the sign of x. |x| scale is at most levels, but for rounding.
void quantize_levels(const float* in, const std::uint32_t* random, std::size_t count, float scale, int levels,
                     std::int8_t* out);
void quantize_levels(const float* in, const std::uint32_t* random, std::size_t count, float scale, int levels,
                     std::int16_t* out);

/// code * step.
void dequantize_levels(const std::int8_t* in, std::size_t count, float step, float* out,
                       Store store = Store::cached);
void dequantize_levels(const std::int16_t* in, std::size_t count, float step, float* out,
                       Store store = Store::cached);

/// Fences streaming stores: call it before another thread learns of the data.
void finish_streaming();

}  // namespace starling::kernel
