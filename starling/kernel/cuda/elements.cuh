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

/// The kV elements of each array that the calling thread works on.
template <Access kAccess, int kV>
class Lanes {
 public:
  __device__ __forceinline__ Lanes(std::size_t count, int shift)
      : count_(static_cast<std::ptrdiff_t>(count)) {
    const auto block = static_cast<std::ptrdiff_t>(blockIdx.x) * (kBlock * kV);
    if constexpr (kAccess == Access::single) {
      first_ = block + threadIdx.x;
      whole_ = false;
    } else {
      first_ = block + static_cast<std::ptrdiff_t>(threadIdx.x) * kV - shift;
      whole_ = first_ >= 0 && first_ + kV <= count_;
    }
  }

  /// Whether the array has an element for lane k: at the ends of an array a thread has fewer than kV
  /// elements.
  __device__ __forceinline__ bool has(int k) const {
    const std::ptrdiff_t i = index(k);
    return i >= 0 && i < count_;
  }

  template <typename E>
  __device__ __forceinline__ void load(const E* from, E (&to)[kV]) const {
    if (whole_) {
      using Word = WordOf<E>;
      constexpr int kWords = static_cast<int>(kV * sizeof(E) / sizeof(Word));
      const auto* at = reinterpret_cast<const Word*>(from + first_);
      Word words[kWords];
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        if constexpr (kAccess == Access::streaming)
          words[w] = __ldcs(at + w);
        else
          words[w] = at[w];
      }
      memcpy(to, words, sizeof to);
    } else {
#pragma unroll
      for (int k = 0; k < kV; ++k) {
        if (has(k))
          to[k] = from[index(k)];
        else
          memset(&to[k], 0, sizeof(E));
      }
    }
  }

  template <typename E>
  __device__ __forceinline__ void store(E* to, const E (&from)[kV]) const {
    if (whole_) {
      using Word = WordOf<E>;
      constexpr int kWords = static_cast<int>(kV * sizeof(E) / sizeof(Word));
      auto* at = reinterpret_cast<Word*>(to + first_);
      Word words[kWords];
      memcpy(words, from, sizeof from);
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        if constexpr (kAccess == Access::streaming)
          __stcs(at + w, words[w]);
        else
          at[w] = words[w];
      }
    } else {
#pragma unroll
      for (int k = 0; k < kV; ++k)
        if (has(k)) to[index(k)] = from[k];
    }
  }

 private:
  template <typename E>
  using WordOf = std::conditional_t<kV * sizeof(E) % 16 == 0, uint4,
                                    std::conditional_t<kV * sizeof(E) % 8 == 0, uint2, unsigned>>;

  __device__ __forceinline__ std::ptrdiff_t index(int k) const {
    return first_ + (kAccess == Access::single ? k * kBlock : k);
  }

  std::ptrdiff_t count_;
  std::ptrdiff_t first_;
  bool whole_;
};

/// Words of kV elements, all of which every array has: loads and stores without a branch.
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

/// One element of each array.
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

/// Calls body with the calling thread's elements: a word, or one after the other at the ends of the arrays and
/// where these are aligned differently.
template <Access kAccess, int kV, typename Body>
__device__ __forceinline__ void each_lane(std::size_t count, int shift, const Body& body) {
  const auto end = static_cast<std::ptrdiff_t>(count);
  const auto block = static_cast<std::ptrdiff_t>(blockIdx.x) * (kBlock * kV);
  constexpr bool kSingle = kAccess == Access::single;
  const std::ptrdiff_t first =
      kSingle ? block + threadIdx.x : block + static_cast<std::ptrdiff_t>(threadIdx.x) * kV - shift;
  if constexpr (!kSingle)
    if (first >= 0 && first + kV <= end) return body(Words<kAccess, kV>{first});
#pragma unroll 1
  for (int k = 0; k < kV; ++k) {
    const std::ptrdiff_t at = first + (kSingle ? k * kBlock : k);
    if (at >= 0 && at < end) body(OneElement{at});
  }
}

}  // namespace starling::kernel::cuda
