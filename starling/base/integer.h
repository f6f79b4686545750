#pragma once

#include <bit>
#include <cstdint>

#include "starling/base/types.h"

// Integer arithmetic for topologies. Floating-point logarithms are wrong at exact powers, so none are used
// here.

namespace starling {

/// ceil(log2(n)); 0 for n = 1.
constexpr int ceil_log2(std::int64_t n) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

/// floor(log2(n)).
constexpr int floor_log2(std::int64_t n) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n))) - 1;
}

constexpr bool is_power_of_two(std::int64_t n) {
  return std::has_single_bit(static_cast<std::uint64_t>(n));
}

/// The least r with base^r >= n.
constexpr int ceil_log(std::int64_t base, std::int64_t n) {
  int r = 0;
  for (std::int64_t power = 1; power < n; power *= base) ++r;
  return r;
}

constexpr std::int64_t power(std::int64_t base, int exponent) {
  std::int64_t result = 1;
  while (exponent-- > 0) result *= base;
  return result;
}

/// a mod n, in 0 .. n-1, for any a.
constexpr Rank wrap(std::int64_t a, Rank n) {
  const std::int64_t r = a % n;
  return static_cast<Rank>(r < 0 ? r + n : r);
}

/// a + b mod n for a and b in 0 .. n-1, without a division and without overflow.
constexpr Rank add_mod(Rank a, Rank b, Rank n) {
  return a >= n - b ? a - (n - b) : a + b;
}

/// a - b mod n for a and b in 0 .. n-1.
constexpr Rank sub_mod(Rank a, Rank b, Rank n) {
  return a >= b ? a - b : a + (n - b);
}

}  // namespace starling
