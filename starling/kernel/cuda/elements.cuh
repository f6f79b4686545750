#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "starling/base/dtype.h"
#include "starling/kernel/cuda/shape.h"

// How kernels read and write elements: 16 bytes per array and thread if the addresses allow it.

namespace starling::kernel::cuda {

/// The type that elements are computed in: float for the 16-bit types.
template <typename E>
using Computed = std::conditional_t<std::is_same_v<E, Half> || std::is_same_v<E, BFloat16>, float, E>;

/// An element as a number to compute with, and back. The device's own conversions round to nearest even, but
/// turn every NaN into one and the same: NaNs become what base/dtype.h makes of them, of whose functions
/// these are the lines for NaNs alone.
template <typename E>
__device__ __forceinline__ Computed<E> number_of(E element) {
  if constexpr (std::is_same_v<E, Half>) {
    const std::uint32_t bits = element.bits;
    if ((bits & 0x7FFFU) > 0x7C00U)
      return std::bit_cast<float>((bits & 0x8000U) << 16 | 0x7FC00000U | (bits & 0x3FFU) << 13);
    return __half2float(__ushort_as_half(element.bits));
  } else if constexpr (std::is_same_v<E, BFloat16>) {
    return starling::detail::bfloat16_value(element.bits);
  } else {
    return element;
  }
}

template <typename E>
__device__ __forceinline__ E element_of(Computed<E> number) {
  E element;
  if constexpr (std::is_same_v<E, Half>) {
    const auto bits = std::bit_cast<std::uint32_t>(number);
    element.bits = number != number
                       ? static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | 0x7E00U | (bits >> 13 & 0x1FFU))
                       : __half_as_ushort(__float2half_rn(number));
  } else if constexpr (std::is_same_v<E, BFloat16>) {
    element.bits = number != number
                       ? static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number) >> 16 | 0x40U)
                       : __bfloat16_as_ushort(__float2bfloat16_rn(number));
  } else {
    element = number;
  }
  return element;
}

// The elements of each array that a thread works on. Arrays have all of them, so that loads and stores need
// no branch.

/// kV elements in words of up to 16 bytes.
template <Access kAccess, int kV>
struct Words {
  static constexpr int kLanes = kV;
  std::ptrdiff_t first;

  template <typename E>
  using Word = std::conditional_t<kV * sizeof(E) % 16 == 0, uint4,
                                  std::conditional_t<kV * sizeof(E) % 8 == 0, uint2, unsigned>>;
  template <typename E>
  static constexpr int kWords = static_cast<int>(kV * sizeof(E) / sizeof(Word<E>));

  template <typename E>
  __device__ __forceinline__ void load(const E* from, E (&to)[kV]) const {
    const auto* at = reinterpret_cast<const Word<E>*>(from + first);
    Word<E> words[kWords<E>];
#pragma unroll
    for (int w = 0; w < kWords<E>; ++w) {
      if constexpr (kAccess == Access::streaming)
        words[w] = __ldcs(at + w);
      else
        words[w] = at[w];
    }
    memcpy(to, words, sizeof to);
  }
  template <typename E>
  __device__ __forceinline__ void store(E* to, const E (&from)[kV]) const {
    auto* at = reinterpret_cast<Word<E>*>(to + first);
    Word<E> words[kWords<E>];
    memcpy(words, from, sizeof from);
#pragma unroll
    for (int w = 0; w < kWords<E>; ++w) {
      if constexpr (kAccess == Access::streaming)
        __stcs(at + w, words[w]);
      else
        at[w] = words[w];
    }
  }
};

/// kV elements, each beside those of the other threads.
template <int kV>
struct Spread {
  static constexpr int kLanes = kV;
  std::ptrdiff_t first;

  template <typename E>
  __device__ __forceinline__ void load(const E* from, E (&to)[kV]) const {
#pragma unroll
    for (int k = 0; k < kV; ++k) to[k] = from[first + k * kBlock];
  }
  template <typename E>
  __device__ __forceinline__ void store(E* to, const E (&from)[kV]) const {
#pragma unroll
    for (int k = 0; k < kV; ++k) to[first + k * kBlock] = from[k];
  }
};

struct OneElement {
  static constexpr int kLanes = 1;
  std::ptrdiff_t first;

  template <typename E>
  __device__ __forceinline__ void load(const E* from, E (&to)[1]) const {
    to[0] = from[first];
  }
  template <typename E>
  __device__ __forceinline__ void store(E* to, const E (&from)[1]) const {
    to[first] = from[0];
  }
};

/// Calls body with the calling thread's elements: kV at once, at the ends of the arrays one after the other.
template <Access kAccess, int kV, typename Body>
__device__ __forceinline__ void each_lane(std::size_t count, int shift, const Body& body) {
  constexpr bool kSingle = kAccess == Access::single;
  constexpr std::ptrdiff_t kStep = kSingle ? kBlock : 1;
  using Whole = std::conditional_t<kSingle, Spread<kV>, Words<kAccess, kV>>;
  const auto end = static_cast<std::ptrdiff_t>(count);
  const auto block = static_cast<std::ptrdiff_t>(blockIdx.x) * (kBlock * kV);
  const std::ptrdiff_t first =
      kSingle ? block + threadIdx.x : block + static_cast<std::ptrdiff_t>(threadIdx.x) * kV - shift;
  if (first >= 0 && first + (kV - 1) * kStep < end) return body(Whole{first});
#pragma unroll 1
  for (int k = 0; k < kV; ++k)
    if (const std::ptrdiff_t at = first + k * kStep; at >= 0 && at < end) body(OneElement{at});
}

}  // namespace starling::kernel::cuda
