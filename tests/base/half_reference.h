#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// Reference implementation of 16-bit floats from their definition, with exact integers and doubles. It is
// slow and shares no method with the code under test.

namespace starling::half_reference {

struct Format {
  int exponent_bits;
  int fraction_bits;
};

inline constexpr Format kHalf{5, 10};
inline constexpr Format kBFloat16{8, 7};

/// Returns the value of a finite or infinite bit pattern.
template <Format kFormat>
double value(std::uint16_t bits) {
  const int bias = (1 << (kFormat.exponent_bits - 1)) - 1;
  const int exponent = (bits >> kFormat.fraction_bits) & ((1 << kFormat.exponent_bits) - 1);
  const int fraction = bits & ((1 << kFormat.fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << kFormat.exponent_bits) - 1) return sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - kFormat.fraction_bits);
  return sign * std::ldexp(fraction + (1 << kFormat.fraction_bits), exponent - bias - kFormat.fraction_bits);
}

/// Rounds the float with these bits to the 16-bit format.
template <Format kFormat>
std::uint16_t round(std::uint32_t bits) {
  const int bias = (1 << (kFormat.exponent_bits - 1)) - 1;
  const auto sign = static_cast<std::uint32_t>(bits >> 31) << 15;
  const std::uint32_t infinity = ((1U << kFormat.exponent_bits) - 1) << kFormat.fraction_bits;
  const int biased = static_cast<int>((bits >> 23) & 0xFF);
  const std::uint32_t fraction = bits & 0x7FFFFF;
  if (biased == 255 && fraction != 0) {  // the upper part of the payload, quiet
    const std::uint32_t kept =
        (fraction >> (23 - kFormat.fraction_bits)) | (1U << (kFormat.fraction_bits - 1));
    return static_cast<std::uint16_t>(sign | infinity | kept);
  }
  if (biased == 255) return static_cast<std::uint16_t>(sign | infinity);
  const std::uint64_t significand = biased == 0 ? fraction : (fraction | 0x800000);
  const int power = (biased == 0 ? 1 : biased) - 127 - 23;  // |x| = significand * 2^power
  if (significand == 0) return static_cast<std::uint16_t>(sign);
  const int leading = static_cast<int>(std::bit_width(significand)) - 1 + power;  // 2^leading <= |x|
  const int lowest = (leading < 1 - bias ? 1 - bias : leading) - kFormat.fraction_bits;
  const int drop = lowest - power;  // units of the last place are 2^drop significand units
  std::uint64_t units = 0;
  if (drop <= 0) {
    units = significand << -drop;
  } else if (drop < 60) {
    units = significand >> drop;
    const std::uint64_t rest = significand & ((std::uint64_t{1} << drop) - 1);
    const std::uint64_t tie = std::uint64_t{1} << (drop - 1);
    if (rest > tie || (rest == tie && units % 2 == 1)) ++units;
  }
  // Units count upward through the patterns; a carry into the next power lands where it belongs.
  const int exponent = leading < 1 - bias ? 1 : leading + bias;
  const std::uint64_t pattern = units + (static_cast<std::uint64_t>(exponent - 1) << kFormat.fraction_bits);
  return static_cast<std::uint16_t>(sign | (pattern >= infinity ? infinity : pattern));
}

}  // namespace starling::half_reference
