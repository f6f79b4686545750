#pragma once

#include <algorithm>
#include <cstddef>

#include "starling/base/floors.h"

// The order in which squares are added up, the same on the host and on devices: a tree that depends only on
// the number of elements. The elements are cut into chunks, and each chunk into kSquareStrips strips. The
// squares of a strip are added to kSquareColumns sums, by index modulo kSquareColumns. All sums of a chunk,
// strip by strip, are folded; then the sums of the chunks are.

namespace starling::kernel {

inline constexpr std::size_t kSquareColumns = 32;
inline constexpr std::size_t kSquareStrips = 32;
inline constexpr std::size_t kSquareSums = kSquareColumns * kSquareStrips;
inline constexpr std::size_t kMostSquareChunks = 1024;

/// The number of elements of a strip; the last strips may have fewer, or none.
constexpr std::size_t square_strip(std::size_t count) {
  constexpr std::size_t kLeastRows = 16;
  constexpr std::size_t kMost = kMostSquareChunks * kSquareSums;  // in one row of all strips
  return kSquareColumns * std::max(kLeastRows, (count + kMost - 1) / kMost);
}

/// Folds sums whose number is padded with zeros to a power of two: the upper half is added to the lower half
/// until four are left, which become (a + b) + (c + d). `n` sums are given.
inline double fold_sums(double* sums, std::size_t n) {
  std::size_t half = 4;
  while (2 * half < n) half *= 2;
  for (; half >= 4; half /= 2) {
    const std::size_t above = n > half ? n - half : 0;
    for (std::size_t k = 0; k < above; ++k) sums[k] += sums[half + k];
    n = std::min(n, half);
  }
  double last[4] = {};
  std::copy_n(sums, n, last);
  return (last[0] + last[1]) + (last[2] + last[3]);
}

}  // namespace starling::kernel
