#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "starling/base/random.h"
#include "starling/kernel/element_rules.h"

// How codecs and int8 messages encode one element; see kernel/quantize.h and kernel/int8.h. The SIMD kernels
// reproduce these functions bit for bit, and device code calls them.

namespace starling::kernel {

struct ValueRange {
  float least;
  float greatest;
};

/// Bagua's min-max code, every operation in float32: scale = 255 / (greatest - least + 1e-7), upper =
/// rint(greatest scale), lower = upper - 255.
struct Uint8Steps {
  STARLING_ELEMENT_RULE explicit Uint8Steps(ValueRange range)
      : scale(255.0F / (range.greatest - range.least + 1e-7F)),
        upper(std::nearbyint(range.greatest * scale)),
        lower(upper - 255.0F) {}

  float scale;
  float upper;
  float lower;
};

/// The grid of int8 codes: a code stands for middle + code * step.
struct Int8Grid {
  float middle;
  float step;
};

namespace rules {

STARLING_ELEMENT_RULE bool is_finite(float x) {
  return x - x == 0.0F;
}

/// Converts to float32. A NaN keeps the payload bits that fit, also on devices, whose conversions turn all
/// NaNs into one.
STARLING_ELEMENT_RULE float narrowed(float x) {
  return x;
}
STARLING_ELEMENT_RULE float narrowed(double x) {
  if (x == x) return static_cast<float>(x);
  const auto bits = std::bit_cast<std::uint64_t>(x);
  return std::bit_cast<float>(
      static_cast<std::uint32_t>(bits >> 63 << 31 | 0x7FC00000U | (bits >> 29 & 0x3FFFFFU)));
}

/// Whether values in this range can be encoded as uint8.
STARLING_ELEMENT_RULE bool has_uint8_codes(const ValueRange& range, const Uint8Steps& steps) {
  return is_finite(range.least) && is_finite(range.greatest) && is_finite(steps.upper);
}
STARLING_ELEMENT_RULE std::uint8_t uint8_code(const Uint8Steps& steps, float x) {
  const float above = std::nearbyint(x * steps.scale) - steps.lower;
  const float held = above < 0.0F ? 0.0F : above > 255.0F ? 255.0F : above;
  return static_cast<std::uint8_t>(held);
}
STARLING_ELEMENT_RULE float uint8_value(const Uint8Steps& steps, std::uint8_t code) {
  return (static_cast<float>(code) + steps.lower) / steps.scale;
}

/// The grid of a run and the factor of its codes; factor 0: all codes are 0.
struct Int8Scale {
  Int8Grid grid;
  float factor;
};
STARLING_ELEMENT_RULE Int8Scale int8_scale(const ValueRange& range) {
  constexpr float kLargestCode = 127;
  const auto [least, greatest] = range;
  if (!is_finite(least) || !is_finite(greatest)) return {{std::numeric_limits<float>::quiet_NaN(), 0}, 0};
  const auto middle = static_cast<float>((static_cast<double>(least) + static_cast<double>(greatest)) / 2);
  // Measured from the rounded middle, so that no code exceeds the largest one.
  const float above = greatest - middle, below = middle - least;
  const float reach = above < below ? below : above;
  const float factor = kLargestCode / reach;
  // The values are equal, or differ too little to matter.
  if (!is_finite(factor)) return {{middle, 0}, 0};
  return {{middle, reach / kLargestCode}, factor};
}
STARLING_ELEMENT_RULE std::int8_t int8_code(const Int8Scale& scale, float x) {
  if (scale.factor == 0) return 0;
  // Adding 1.5 * 2^23 rounds q to an integer, whose two's complement is then in the last byte.
  const float code = (x - scale.grid.middle) * scale.factor + 0x1.8p23F;
  return static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(code));
}
STARLING_ELEMENT_RULE float int8_value(const Int8Grid& grid, std::int8_t code) {
  return static_cast<float>(code) * grid.step + grid.middle;
}

/// The bits of a QSGD code: 2 levels + 1 values in two's complement.
STARLING_ELEMENT_RULE unsigned level_bits(int levels) {
  unsigned bits = 1;
  for (auto rest = static_cast<unsigned>(levels); rest > 0; rest /= 2) ++bits;
  return bits;
}
/// The norm that is sent, and the factor for |x|, of a chunk whose squares have this sum; factor 0: all codes
/// are 0.
struct LevelScale {
  float norm;
  float factor;
};
STARLING_ELEMENT_RULE LevelScale level_scale(double sum_of_squares, int levels) {
  auto norm = static_cast<float>(std::sqrt(sum_of_squares));
  if (!is_finite(norm)) norm = std::numeric_limits<float>::quiet_NaN();
  const float factor = static_cast<float>(levels) / norm;
  return {norm, is_finite(factor) ? factor : 0};
}
STARLING_ELEMENT_RULE std::int16_t level_code(float x, std::uint32_t random, float factor, int levels) {
  const float scaled = std::fabs(x) * factor;
  const float low = std::floor(scaled);
  const float drawn = static_cast<float>(static_cast<std::int32_t>(random >> 8)) * 0x1p-24F;
  const float level = drawn < scaled - low ? low + 1.0F : low;
  const float held = level < static_cast<float>(levels) ? level : static_cast<float>(levels);
  return static_cast<std::int16_t>(x < 0 ? -held : held);
}
STARLING_ELEMENT_RULE float level_value(float norm, int levels, std::int16_t code) {
  return static_cast<float>(code) * (norm / static_cast<float>(levels));
}

/// The mean |x| of a chunk, as it is sent; every NaN becomes the same NaN.
STARLING_ELEMENT_RULE float sign_scale(double sum, std::size_t count) {
  const double mean = sum / static_cast<double>(count);
  return mean == mean ? static_cast<float>(mean) : std::numeric_limits<float>::quiet_NaN();
}

/// A value of the random-k codec; NaNs stay unchanged.
STARLING_ELEMENT_RULE float scaled_value(float factor, float x) {
  return x == x ? factor * x : x;
}

/// The bits of |x|, which are ordered like |x|, with NaN above infinity.
STARLING_ELEMENT_RULE std::uint32_t magnitude(float x) {
  return std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU;
}

}  // namespace rules

/// The random numbers 2 k, 2 k + 1, 2 k + 32 and 2 k + 33 of group `group` of random_words(), for k below 16.
constexpr std::array<std::uint32_t, 4> random_four(std::uint64_t key, std::uint64_t group, unsigned k) {
  const std::uint64_t block = 16 * group + k;
  return philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, key);
}

}  // namespace starling::kernel
