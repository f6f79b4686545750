#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cuda_runtime_api.h>

// A stand-in for CUDA's header.

struct __nv_bfloat16 {
  unsigned short bits;
};

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
  return value.bits;
}
/// Rounds to nearest, ties to even; compares in float64, where the distances are exact. Values above the
/// largest number become 2^128. As on a GPU, all NaNs become the same.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  const auto whole = std::bit_cast<std::uint32_t>(value);
  if (value != value) return {0x7FFF};
  const auto low = static_cast<unsigned short>(whole >> 16);
  if (std::isinf(value)) return {low};
  const auto high = static_cast<unsigned short>(low + 1);
  const auto magnitude = [](unsigned short bits) {
    const auto wide = static_cast<std::uint32_t>(bits & 0x7FFFU) << 16;
    return wide == 0x7F800000U ? 0x1p128 : static_cast<double>(std::bit_cast<float>(wide));
  };
  const double exact = std::abs(static_cast<double>(value));
  const double below = exact - magnitude(low), above = magnitude(high) - exact;
  if (below != above) return {below < above ? low : high};
  return {(low & 1U) == 0 ? low : high};
}
