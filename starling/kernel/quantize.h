#pragma once

#include <cstddef>
#include <cstdint>

#include "starling/kernel/code_rules.h"
#include "starling/kernel/store.h"

// Element-wise loops of codecs. The bits are the same on every instruction set and for every alignment.
// Chunks are short, so a caller that passes Store::streaming calls finish_streaming() once, after the last
// chunk.

namespace starling::kernel {

/// The range of at least one value. Both ends are NaN if a value is; zeros count as +0.
ValueRange value_range(const float* in, std::size_t count);

/// min(rint(x scale), upper) - lower, clamped to 0 .. 255. If the range or `upper` is not finite (as for a
/// nearly constant run beyond 1e29), the codes are 255.
void quantize_uint8(const float* in, std::size_t count, ValueRange range, std::uint8_t* out);

/// (q + lower) / scale. NaN if greatest - least is not finite, infinite if only `upper` is not.
void dequantize_uint8(const std::uint8_t* in, std::size_t count, ValueRange range, float* out,
                      Store store = Store::cached);

/// Packs one bit per element, the first into the lowest bit: 1 for values below zero (not for NaN); the last
/// byte is padded with 0. Returns the sum of |x|: 64 sums in float32 over at most 4096 elements, added up in
/// float64.
double pack_signs(const float* in, std::size_t count, std::uint8_t* bits);

/// -scale where the bit is 1, else scale.
void unpack_signs(const std::uint8_t* bits, std::size_t count, float scale, float* out,
                  Store store = Store::cached);

/// The elements `first` .. first + count of the endless sequence of 32-bit random numbers of `key`. `first`
/// is a multiple of 64. In group g of 64 numbers, j and j + 32 come from the Philox block of counter {16 g +
/// (j mod 32) / 2, 0, 0, 0}: words j mod 2 and 2 + j mod 2.
void random_words(std::uint64_t key, std::size_t first, std::size_t count, std::uint32_t* out);

/// Rounds |x| scale stochastically to 0 .. levels, up with the probability of the fraction (random / 2^32 <
/// fraction, using 24 bits), and keeps the sign of x. |x| scale is at most levels, up to rounding.
void quantize_levels(const float* in, const std::uint32_t* random, std::size_t count, float scale, int levels,
                     std::int8_t* out);
void quantize_levels(const float* in, const std::uint32_t* random, std::size_t count, float scale, int levels,
                     std::int16_t* out);

/// code * step.
void dequantize_levels(const std::int8_t* in, std::size_t count, float step, float* out,
                       Store store = Store::cached);
void dequantize_levels(const std::int16_t* in, std::size_t count, float step, float* out,
                       Store store = Store::cached);

/// Fences streaming stores: call it before another thread may read the data.
void finish_streaming();

}  // namespace starling::kernel
