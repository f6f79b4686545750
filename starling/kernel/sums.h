#pragma once

#include <algorithm>
#include <cstddef>

// How kernels sum float32 quickly, in one order for all instruction sets.

namespace starling::kernel {

inline constexpr std::size_t kSums = 64;

/// The sum of what add(begin, count, sums) adds, by index modulo 64, to 64 sums in float32; each call has at
/// most 4096 elements, and the pieces are added up in float64.
template <typename Add>
double sum_in_pieces(std::size_t count, const Add& add) {
  constexpr std::size_t kPiece = 4096;
  double total = 0;
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    float sums[kSums] = {};
    add(begin, std::min(kPiece, count - begin), sums);
    double eight[8] = {};
    for (std::size_t k = 0; k < kSums; ++k) eight[k % 8] += static_cast<double>(sums[k]);
    total +=
        ((eight[0] + eight[4]) + (eight[1] + eight[5])) + ((eight[2] + eight[6]) + (eight[3] + eight[7]));
  }
  return total;
}

}  // namespace starling::kernel
