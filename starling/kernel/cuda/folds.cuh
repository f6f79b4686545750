#pragma once

#include <algorithm>

#include "starling/kernel/code_rules.h"
#include "starling/kernel/cuda/elements.cuh"
#include "starling/kernel/cuda/phases.cuh"
#include "starling/kernel/square_sum.h"
#include "starling/kernel/sums.h"

// Reductions by all threads of a block in shared memory. Every function leaves the memory free for the next
// phase to overwrite.

namespace starling::kernel::cuda {

/// The sums of kernel/square_sum.h: sums[k][t] is number 4 t + k.
using BlockSums = double[4][kBlock];
static_assert(kSquareSums == 4 * kBlock);

/// Folds the first `n` sums like fold_sums() in kernel/square_sum.h; thread 0 gets the result.
__device__ __forceinline__ double fold_block(BlockSums& sums, unsigned n = 4 * kBlock) {
  for (unsigned half = kBlock / 2; half > 0; half /= 2) {
    if (4 * half >= n) continue;
    each_thread([&] {
      const unsigned t = threadIdx.x;
      if (t >= half) return;
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[k][t] += sums[k][t + half];
    });
  }
  return (sums[0][0] + sums[1][0]) + (sums[2][0] + sums[3][0]);
}

/// Like value_range() in kernel/quantize.h, for at least one value.
template <typename T>
__device__ __forceinline__ ValueRange block_range(const T* in, std::size_t count) {
  __shared__ float least[kBlock], greatest[kBlock];
  each_thread([&] {
    float low = rules::narrowed(in[0]), high = low;
    for (std::size_t i = threadIdx.x; i < count; i += kBlock) {
      const auto x = rules::narrowed(in[i]);
      low = rules::minimum(low, x), high = rules::maximum(high, x);
    }
    least[threadIdx.x] = low, greatest[threadIdx.x] = high;
  });
  for (unsigned half = kBlock / 2; half > 0; half /= 2)
    each_thread([&] {
      const unsigned t = threadIdx.x;
      if (t >= half) return;
      least[t] = rules::minimum(least[t], least[t + half]);
      greatest[t] = rules::maximum(greatest[t], greatest[t + half]);
    });
  if (least[0] != least[0] || greatest[0] != greatest[0]) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    return {kNan, kNan};
  }
  return {least[0] + 0.0F, greatest[0] + 0.0F};  // -0 + 0 is +0
}

/// The sum of |x|, computed like pack_signs() in kernel/quantize.h: four pieces at a time.
template <typename T>
__device__ __forceinline__ double block_magnitudes(const T* in, std::size_t count) {
  constexpr unsigned kPieces = kBlock / kSums;
  __shared__ float columns[kBlock];
  __shared__ double eight[kPieces][8];
  __shared__ double total;
  for (std::size_t begin = 0; begin < count; begin += kPieces * kSumsPiece) {
    each_thread([&] {
      const std::size_t piece = begin + threadIdx.x / kSums * kSumsPiece;
      const std::size_t end = piece + kSumsPiece < count ? piece + kSumsPiece : count;
      float sum = 0;
      for (std::size_t i = piece + threadIdx.x % kSums; i < end; i += kSums)
        sum = sum + std::fabs(rules::narrowed(in[i]));
      columns[threadIdx.x] = sum;
    });
    each_thread([&] {
      const unsigned piece = threadIdx.x / 8, part = threadIdx.x % 8;
      if (piece >= kPieces) return;
      double sum = 0;
      for (unsigned k = part; k < kSums; k += 8) sum += static_cast<double>(columns[piece * kSums + k]);
      eight[piece][part] = sum;
    });
    each_thread([&] {
      if (threadIdx.x != 0) return;
      double sum = begin == 0 ? 0.0 : total;
      for (unsigned piece = 0; piece < kPieces && begin + piece * kSumsPiece < count; ++piece)
        sum += sum_of_eight(eight[piece]);
      total = sum;
    });
  }
  return total;
}

/// The sum of squares like sum_of_squares() in kernel/update.h, of at most kMostOfBlock numbers; all threads
/// get it.
inline constexpr std::size_t kMostOfBlock = std::size_t{1} << 20;

template <typename T>
__device__ __forceinline__ double block_squares(const T* in, std::size_t count) {
  constexpr std::size_t kStrip = square_strip(kMostOfBlock);
  static_assert(kStrip == square_strip(1));
  constexpr std::size_t kChunk = kSquareStrips * kStrip;
  constexpr unsigned kThreads = kSquareColumns / 4;  // per strip
  __shared__ BlockSums sums;
  __shared__ double chunks[kMostOfBlock / kChunk];
  unsigned n = 0;
  for (std::size_t begin = 0; begin < count; begin += kChunk, ++n) {
    const std::size_t of_chunk = begin + kChunk < count ? kChunk : count - begin;
    each_thread([&] {
      const std::size_t strip = threadIdx.x / kThreads * kStrip;
      const std::size_t end = strip + kStrip < of_chunk ? strip + kStrip : of_chunk;
      double own[4] = {};
      for (std::size_t i = strip + 4 * (threadIdx.x % kThreads); i < end; i += kSquareColumns)
#pragma unroll
        for (unsigned k = 0; k < 4; ++k)
          if (i + k < end) {
            const auto x = static_cast<double>(rules::narrowed(in[begin + i + k]));
            own[k] += x * x;
          }
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[k][threadIdx.x] = own[k];
    });
    const auto used = static_cast<unsigned>((of_chunk + kStrip - 1) / kStrip * kSquareColumns);
    const double sum = fold_block(sums, used);
    each_thread([&] {
      if (threadIdx.x == 0) chunks[n] = sum;
    });
  }
  each_thread([&] {
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const unsigned i = 4 * threadIdx.x + k;
      sums[k][threadIdx.x] = i < n ? chunks[i] : 0.0;
    }
  });
  return fold_block(sums, n);
}

}  // namespace starling::kernel::cuda
