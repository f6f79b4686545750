#pragma once

#include <algorithm>
#include <cstddef>

#include "starling/kernel/element_rules.h"

// Fast sums of many numbers, in one order on all instruction sets.

namespace starling::kernel {

inline constexpr std::size_t kSums = 64;
/// The largest number of elements per piece.
inline constexpr std::size_t kSumsPiece = 4096;

STARLING_ELEMENT_RULE double sum_of_eight(const double* eight) {
  return ((eight[0] + eight[4]) + (eight[1] + eight[5])) + ((eight[2] + eight[6]) + (eight[3] + eight[7]));
}

/// The total of the 64 sums of type T to which add(begin, count, sums) adds elements by index modulo 64. Each
/// call has at most kSumsPiece elements; the pieces are added up in float64.
template <typename T = float, typename Add>
double sum_in_pieces(std::size_t count, const Add& add) {
  double total = 0;
  for (std::size_t begin = 0; begin < count; begin += kSumsPiece) {
    T sums[kSums] = {};
    add(begin, std::min(kSumsPiece, count - begin), sums);
    double eight[8] = {};
    for (std::size_t k = 0; k < kSums; ++k) eight[k % 8] += static_cast<double>(sums[k]);
    total += sum_of_eight(eight);
  }
  return total;
}

}  // namespace starling::kernel
