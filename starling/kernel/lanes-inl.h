// Loads and stores vectors of floats from memory of any floating dtype, and function tables per instruction
// set. Included only by the kernels' sources, once per Highway target (hence the guard that toggles).

#include <cstddef>
#include <cstdint>
#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <type_traits>

#include "starling/base/dtype.h"
#include "starling/kernel/sums.h"
#include "starling/kernel/target.h"

#if defined(__FAST_MATH__)
#error "the kernels promise bitwise equal results: build them without -ffast-math"
#endif

// The table of a function that exists in every target's namespace. HWY_EXPORT would need libhwy at link time;
// this way Highway's headers are enough, and users of an installed Starling need neither.
#ifndef STARLING_TARGETS_OF
#define STARLING_TARGETS_OF(function)                                                    \
  {                                                                                      \
    HWY_CHOOSE_FALLBACK(function), HWY_CHOOSE_SSE4(function), HWY_CHOOSE_AVX2(function), \
        HWY_CHOOSE_AVX3(function)                                                        \
  }

namespace starling::kernel {

// The best compiled function at or below the current target.
template <typename Function>
Function* choose(Function* const (&table)[4]) {
  auto index = static_cast<std::size_t>(current_target());
  while (index > 0 && table[index] == nullptr) --index;
  return table[index];
}

}  // namespace starling::kernel
#endif

#if defined(STARLING_KERNEL_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STARLING_KERNEL_LANES_INL_H_
#undef STARLING_KERNEL_LANES_INL_H_
#else
#define STARLING_KERNEL_LANES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The type that elements are computed in: float for the 16-bit types.
template <typename T>
using Element = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* from) {
  return hn::LoadU(d, from);
}

/// Whether a store leaves its line in the cache or bypasses it (streaming). Streaming needs 64-byte aligned
/// vectors and a fence before another thread reads the block; `unfenced` leaves the fence to the caller.
enum class StoreMode { cached, streaming, unfenced };

// Half of an SSE vector cannot be streamed: Highway would write the whole vector.
template <StoreMode kMode, class V, class D>
HWY_INLINE void put(V v, D d, hn::TFromD<D>* to) {
  if constexpr (kMode != StoreMode::cached && hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) >= 16) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

template <StoreMode kMode = StoreMode::cached, class D>
HWY_INLINE void store(D d, hn::Vec<D> v, hn::TFromD<D>* to) {
  put<kMode>(v, d, to);
}

// Vectors of double can also read and write float.
template <class D, std::enable_if_t<std::is_same_v<hn::TFromD<D>, double>, int> = 0>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), from));
}

template <StoreMode kMode = StoreMode::cached, class D,
          std::enable_if_t<std::is_same_v<hn::TFromD<D>, double>, int> = 0>
HWY_INLINE void store(D, hn::Vec<D> v, float* to) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128  // their DemoteTo makes large numbers finite
  alignas(16) double lanes[hn::MaxLanes(D())];
  hn::Store(v, D(), lanes);
  for (std::size_t i = 0; i < hn::Lanes(D()); ++i) to[i] = static_cast<float>(lanes[i]);
#else
  const hn::Rebind<float, D> df;
  put<kMode>(hn::DemoteTo(df, v), df, to);
#endif
}

// 16-bit patterns widened to 32 bits and back (they are below 2^16, so the narrowing never saturates).
template <class D>
HWY_INLINE auto load_bits(D, const std::uint16_t* from) {
  return hn::PromoteTo(hn::RebindToUnsigned<D>(), hn::LoadU(hn::Rebind<std::uint16_t, D>(), from));
}

template <StoreMode kMode, class D, class V>
HWY_INLINE void store_bits(D, V bits, std::uint16_t* to) {
  const hn::Rebind<std::uint16_t, D> d16;
  put<kMode>(hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<D>(), bits)), d16, to);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* from) {
  return hn::BitCast(d, hn::ShiftLeft<16>(load_bits(d, &from->bits)));
}

// The upper 16 bits are the result, except for a NaN whose payload is in the lower bits.
template <class D>
HWY_INLINE auto round_number(D, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
}

template <StoreMode kMode = StoreMode::cached, class D>
HWY_INLINE void store(D d, hn::Vec<D> v, BFloat16* to) {
  const hn::RebindToUnsigned<D> du;
  const auto nan = hn::Or(hn::BitCast(du, v), hn::Set(du, 0x400000));
  const auto bits = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, round_number(d, v));
  store_bits<kMode>(d, hn::ShiftRight<16>(bits), &to->bits);
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// F16C, as Highway uses it, rounds to nearest even and treats NaN like half_bits (tests compare all values).
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Half* from) {
  return hn::PromoteTo(
      d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), reinterpret_cast<const hwy::float16_t*>(from)));
}

template <StoreMode kMode = StoreMode::cached, class D>
HWY_INLINE void store(D, hn::Vec<D> v, Half* to) {
  const hn::Rebind<hwy::float16_t, D> d16;
  put<kMode>(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(to));
}

#else

// half_value and half_bits of base/dtype.h, with selections instead of branches.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Half* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;  // magnitudes have no sign bit; signed comparisons are cheap everywhere
  const auto bits = load_bits(d, &from->bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  const auto shifted = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7FFF)));
  const auto compared = hn::BitCast(di, shifted);
  const auto least = hn::BitCast(d, hn::Set(du, 0x38800000));
  const auto tiny =
      hn::BitCast(du, hn::Sub(hn::BitCast(d, hn::Add(shifted, hn::Set(du, 0x38800000))), least));
  auto value = hn::Add(shifted, hn::Set(du, 0x38000000));
  value = hn::IfThenElse(hn::RebindMask(du, hn::Lt(compared, hn::Set(di, 0x00800000))), tiny, value);
  const auto special = hn::Or(shifted, hn::Set(du, 0x7F800000));
  value = hn::IfThenElse(hn::RebindMask(du, hn::Gt(compared, hn::Set(di, 0x0F7FFFFF))), special, value);
  const auto quiet = hn::Or(special, hn::Set(du, 0x00400000));
  value = hn::IfThenElse(hn::RebindMask(du, hn::Gt(compared, hn::Set(di, 0x0F800000))), quiet, value);
  return hn::BitCast(d, hn::Or(sign, value));
}

template <StoreMode kMode = StoreMode::cached, class D>
HWY_INLINE void store(D d, hn::Vec<D> v, Half* to) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(du, v);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFF));
  const auto compared = hn::BitCast(di, magnitude);
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
  auto half = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, odd), hn::Set(du, 0xC8000FFF)));
  const auto sum = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F));
  const auto tiny = hn::Sub(hn::BitCast(du, sum), hn::Set(du, 0x3F000000));
  half = hn::IfThenElse(hn::RebindMask(du, hn::Lt(compared, hn::Set(di, 0x38800000))), tiny, half);
  half = hn::IfThenElse(hn::RebindMask(du, hn::Gt(compared, hn::Set(di, 0x477FFFFF))), hn::Set(du, 0x7C00),
                        half);
  const auto nan = hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x1FF)), hn::Set(du, 0x7E00));
  half = hn::IfThenElse(hn::RebindMask(du, hn::Gt(compared, hn::Set(di, 0x7F800000))), nan, half);
  store_bits<kMode>(d, hn::Or(sign, half), &to->bits);
}

#endif

// How map() loads the inputs of d's lanes.
struct Whole {
  template <class D, typename T>
  HWY_INLINE hn::Vec<D> operator()(D d, const T* from) const {
    return load(d, from);
  }
};

#if HWY_TARGET != HWY_SCALAR

// Of twice as many bfloat16 values, those with even or with odd index: in a 32-bit word one becomes a float
// by a shift, the other by a mask. No shuffles.
template <class D>
HWY_INLINE auto load_words(D, const BFloat16* from) {
  const hn::Repartition<std::uint16_t, D> d16;
  return hn::BitCast(hn::RebindToUnsigned<D>(), hn::LoadU(d16, &from->bits));
}

struct Even {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const BFloat16* from) const {
    return hn::BitCast(d, hn::ShiftLeft<16>(load_words(d, from)));
  }
};

struct Odd {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, const BFloat16* from) const {
    return hn::BitCast(d, hn::And(load_words(d, from), hn::Set(hn::RebindToUnsigned<D>(), 0xFFFF0000U)));
  }
};

// A NaN computed from bfloat16 has zeros in the bits that rounding adds to, so it needs no special case.
template <StoreMode kMode, class D>
HWY_INLINE void store_words(D d, hn::Vec<D> even, hn::Vec<D> odd, BFloat16* to) {
  const hn::Repartition<std::uint16_t, D> d16;
  const auto low = hn::ShiftRight<16>(round_number(d, even));
  put<kMode>(hn::OddEven(hn::BitCast(d16, round_number(d, odd)), hn::BitCast(d16, low)), d16, &to->bits);
}

#endif

/// out[i] = f(d, i, loader) for i = 0 .. count-1, one vector of d at a time; f loads its inputs by loader(d,
/// pointer + i). A remainder shorter than a vector goes through one-lane vectors, so an element's result
/// depends neither on its position nor on the vector length.
template <typename L, StoreMode kMode = StoreMode::cached, typename T, typename F>
HWY_INLINE void map(T* out, std::size_t count, const F& f) {
  const hn::ScalableTag<L> d;
  const hn::CappedTag<L, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  if constexpr (kMode != StoreMode::cached)
    for (; i < count && reinterpret_cast<std::uintptr_t>(out + i) % 64 != 0; ++i)
      store(one, f(one, i, Whole()), out + i);
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, BFloat16>)
    if constexpr (std::is_invocable_v<F, decltype(d), std::size_t, Even>)
      for (; i + 2 * lanes <= count; i += 2 * lanes)
        store_words<kMode>(d, f(d, i, Even()), f(d, i, Odd()), out + i);
#endif
  for (; i + lanes <= count; i += lanes) store<kMode>(d, f(d, i, Whole()), out + i);
  for (; i < count; ++i) store(one, f(one, i, Whole()), out + i);
  if constexpr (kMode == StoreMode::streaming) hwy::FlushStream();
}

/// sums[k] += value(i) for i = k, k + 64, ... over whole groups of 64 elements; returns the number of these
/// elements. d has at most 16 lanes; value(i) returns elements i and up. Vectors of every length add in the
/// same order: a pass keeps four vectors of sums in registers, each for its own elements.
template <class D, typename Value>
HWY_INLINE std::size_t add_to_sums(D d, std::size_t count, hn::TFromD<D>* sums, const Value& value) {
  const std::size_t lanes = hn::Lanes(d), whole = count / kSums * kSums;
  for (std::size_t k = 0; k < kSums; k += 4 * lanes) {
    auto s0 = hn::LoadU(d, sums + k), s1 = hn::LoadU(d, sums + k + lanes);
    auto s2 = hn::LoadU(d, sums + k + 2 * lanes), s3 = hn::LoadU(d, sums + k + 3 * lanes);
    for (std::size_t i = k; i < whole; i += kSums) {
      s0 = hn::Add(s0, value(i));
      s1 = hn::Add(s1, value(i + lanes));
      s2 = hn::Add(s2, value(i + 2 * lanes));
      s3 = hn::Add(s3, value(i + 3 * lanes));
    }
    hn::StoreU(s0, d, sums + k);
    hn::StoreU(s1, d, sums + k + lanes);
    hn::StoreU(s2, d, sums + k + 2 * lanes);
    hn::StoreU(s3, d, sums + k + 3 * lanes);
  }
  return whole;
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#endif
