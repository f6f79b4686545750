#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/quantize.cpp"
#include "starling/kernel/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <limits>

#include "starling/base/random.h"
#include "starling/kernel/lanes-inl.h"
#include "starling/kernel/sums.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

// Several vectors at once, because a minimum has a longer latency than throughput.
ValueRange value_range_here(const float* in, std::size_t count) {
  constexpr std::size_t kAtOnce = 4;
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto least0 = hn::Set(d, in[0]), least1 = least0, least2 = least0, least3 = least0;
  auto greatest0 = least0, greatest1 = least0, greatest2 = least0, greatest3 = least0;
  auto strange = hn::IsNaN(least0);
  std::size_t i = 0;
  for (; i + kAtOnce * lanes <= count; i += kAtOnce * lanes) {
    const auto a = hn::LoadU(d, in + i), b = hn::LoadU(d, in + i + lanes);
    const auto c = hn::LoadU(d, in + i + 2 * lanes), e = hn::LoadU(d, in + i + 3 * lanes);
    least0 = hn::Min(least0, a), greatest0 = hn::Max(greatest0, a);
    least1 = hn::Min(least1, b), greatest1 = hn::Max(greatest1, b);
    least2 = hn::Min(least2, c), greatest2 = hn::Max(greatest2, c);
    least3 = hn::Min(least3, e), greatest3 = hn::Max(greatest3, e);
    // The sum is NaN if a summand is; infinities of both signs are sorted out below.
    strange = hn::Or(strange, hn::IsNaN(hn::Add(hn::Add(a, b), hn::Add(c, e))));
  }
  bool nan = !hn::AllFalse(d, strange);
  if (nan) nan = std::any_of(in, in + i, [](float x) { return x != x; });
  for (std::size_t k = i; k < count; ++k) nan = nan || in[k] != in[k];
  if (nan) return {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::quiet_NaN()};
  least0 = hn::Min(hn::Min(least0, least1), hn::Min(least2, least3));
  greatest0 = hn::Max(hn::Max(greatest0, greatest1), hn::Max(greatest2, greatest3));
  ValueRange range{hn::GetLane(hn::MinOfLanes(d, least0)), hn::GetLane(hn::MaxOfLanes(d, greatest0))};
  for (; i < count; ++i) range = {std::min(range.least, in[i]), std::max(range.greatest, in[i])};
  return {range.least + 0.0F, range.greatest + 0.0F};  // -0 + 0 is +0
}

void quantize_uint8_here(const float* in, std::size_t count, Uint8Steps steps, std::uint8_t* out) {
  const auto one_vector = [&](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const auto scaled = hn::Round(hn::Mul(hn::LoadU(d, in + i), hn::Set(d, steps.scale)));
    // Values within the range do not exceed `upper` here, so the minimum with `upper` is the minimum with
    // 255.
    const auto above = hn::Sub(scaled, hn::Set(d, steps.lower));
    const auto held = hn::Min(hn::Max(above, hn::Zero(d)), hn::Set(d, 255.0F));
    // After adding 2^23 the last bits are q, which is faster than a conversion.
    const auto code = hn::BitCast(du, hn::Add(held, hn::Set(d, 0x1p23F)));
    hn::StoreU(hn::TruncateTo(d8, code), d8, out + i);
  };
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) one_vector(d, i);
  for (; i < count; ++i) one_vector(one, i);
}

void dequantize_uint8_here(const std::uint8_t* in, std::size_t count, Uint8Steps steps, float* out,
                           bool streaming) {
  const auto one_vector = [&](auto d, std::size_t i, Whole) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const auto code = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, in + i)));
    return hn::Div(hn::Add(code, hn::Set(d, steps.lower)), hn::Set(d, steps.scale));
  };
  if (streaming) return map<float, StoreMode::unfenced>(out, count, one_vector);
  map<float>(out, count, one_vector);
}

// At most as many lanes as a 32-bit word has bits.
using Floats = hn::CappedTag<float, 16>;

void pack_signs_here(const float* in, std::size_t count, std::uint8_t* bits, float* sums) {
  const Floats d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t done = add_to_sums(d, count, sums, [&](std::size_t i) HWY_ATTR {
    const auto x = hn::LoadU(d, in + i);
    const auto negative = hn::Lt(x, hn::Zero(d));
    std::uint8_t* to = bits + i / 8;
    if (lanes >= 8) {
      hn::StoreMaskBits(d, negative, to);
    } else {
      std::uint8_t few[8];
      hn::StoreMaskBits(d, negative, few);
      *to = static_cast<std::uint8_t>((i % 8 == 0 ? 0 : *to) | (few[0] << (i % 8)));
    }
    return hn::Abs(x);
  });
  for (std::size_t i = done; i < count; ++i) {
    sums[i - done] += std::fabs(in[i]);
    bits[i / 8] =
        static_cast<std::uint8_t>((i % 8 == 0 ? 0 : bits[i / 8]) | ((in[i] < 0 ? 1 : 0) << (i % 8)));
  }
}

template <StoreMode kMode>
void unpack_signs_to(const std::uint8_t* bits, std::size_t count, float scale, float* out) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> du;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN std::uint32_t powers[16];
  for (std::size_t k = 0; k < 16; ++k) powers[k] = 1U << k;
  const auto bit = hn::Load(du, powers);
  const auto plus = hn::Set(d, scale), minus = hn::Set(d, -scale);
  std::size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    std::uint64_t word;
    std::memcpy(&word, bits + i / 8, sizeof(word));
    for (std::size_t k = 0; k < 64; k += lanes) {
      const auto negative = hn::TestBit(hn::Set(du, static_cast<std::uint32_t>(word >> k)), bit);
      put<kMode>(hn::IfThenElse(hn::RebindMask(d, negative), minus, plus), d, out + i + k);
    }
  }
  for (; i < count; ++i) out[i] = (bits[i / 8] >> (i % 8)) % 2 == 0 ? scale : -scale;
}

void unpack_signs_here(const std::uint8_t* bits, std::size_t count, float scale, float* out, bool streaming) {
  if (streaming && reinterpret_cast<std::uintptr_t>(out) % 64 == 0)
    return unpack_signs_to<StoreMode::unfenced>(bits, count, scale, out);
  unpack_signs_to<StoreMode::cached>(bits, count, scale, out);
}

// Sixteen blocks of Philox. Words are in the lower halves of 64-bit lanes, the only part that a product
// reads; the upper halves do not matter until the end.
void random_group_here(std::uint64_t key, std::uint64_t block, std::uint32_t* out) {
#if HWY_TARGET == HWY_SCALAR
  for (std::uint64_t b = 0; b < 16; ++b) {
    const auto words = philox(
        {static_cast<std::uint32_t>(block + b), static_cast<std::uint32_t>((block + b) >> 32), 0, 0}, key);
    out[2 * b] = words[0], out[2 * b + 1] = words[1], out[2 * b + 32] = words[2], out[2 * b + 33] = words[3];
  }
#else
  const hn::CappedTag<std::uint64_t, 8> d;
  const hn::Repartition<std::uint32_t, decltype(d)> d32;
  const auto times = [&](auto a, std::uint32_t b)
                         HWY_ATTR { return hn::MulEven(hn::BitCast(d32, a), hn::Set(d32, b)); };
  const auto lower = hn::Set(d, 0xFFFFFFFFU);
  for (std::size_t b = 0; b < 16; b += hn::Lanes(d)) {
    auto c0 = hn::Add(hn::Set(d, block + b), hn::Iota(d, 0));
    auto c1 = hn::ShiftRight<32>(c0), c2 = hn::Zero(d), c3 = c2;
    auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto p0 = times(c0, 0xD2511F53), p1 = times(c2, 0xCD9E8D57);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, k0));
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, k1));
      c1 = p1, c3 = p0;
      k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    }
    hn::StoreU(hn::BitCast(d32, hn::Or(hn::And(c0, lower), hn::ShiftLeft<32>(c1))), d32, out + 2 * b);
    hn::StoreU(hn::BitCast(d32, hn::Or(hn::And(c2, lower), hn::ShiftLeft<32>(c3))), d32, out + 2 * b + 32);
  }
#endif
}

void random_words_here(std::uint64_t key, std::size_t first, std::size_t count, std::uint32_t* out) {
  std::size_t i = 0;
  for (; i + 64 <= count; i += 64) random_group_here(key, (first + i) / 4, out + i);
  if (i == count) return;
  std::uint32_t last[64];
  random_group_here(key, (first + i) / 4, last);
  std::memcpy(out + i, last, (count - i) * sizeof(*out));
}

template <typename Code>
void quantize_levels_to(const float* in, const std::uint32_t* random, std::size_t count, float scale,
                        int levels, Code* out) {
  const auto one_vector = [&](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> di;
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<Code, decltype(d)> dcode;
    const auto x = hn::LoadU(d, in + i);
    const auto scaled = hn::Mul(hn::Abs(x), hn::Set(d, scale));
    const auto low = hn::Floor(scaled);
    const auto drawn = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(hn::LoadU(du, random + i))));
    const auto up = hn::Lt(hn::Mul(drawn, hn::Set(d, 0x1p-24F)), hn::Sub(scaled, low));
    const auto level = hn::Add(low, hn::IfThenElseZero(up, hn::Set(d, 1.0F)));
    const auto held = hn::Min(level, hn::Set(d, static_cast<float>(levels)));
    hn::StoreU(hn::DemoteTo(dcode, hn::ConvertTo(di, hn::CopySign(held, x))), dcode, out + i);
  };
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) one_vector(d, i);
  for (; i < count; ++i) one_vector(one, i);
}

void quantize_levels8_here(const float* in, const std::uint32_t* random, std::size_t count, float scale,
                           int levels, std::int8_t* out) {
  quantize_levels_to(in, random, count, scale, levels, out);
}
void quantize_levels16_here(const float* in, const std::uint32_t* random, std::size_t count, float scale,
                            int levels, std::int16_t* out) {
  quantize_levels_to(in, random, count, scale, levels, out);
}

template <typename Code>
void dequantize_levels_to(const Code* in, std::size_t count, float step, float* out, bool streaming) {
  const auto one_vector = [&](auto d, std::size_t i, Whole) HWY_ATTR {
    const hn::Rebind<Code, decltype(d)> dcode;
    const auto code = hn::PromoteTo(hn::RebindToSigned<decltype(d)>(), hn::LoadU(dcode, in + i));
    return hn::Mul(hn::ConvertTo(d, code), hn::Set(d, step));
  };
  if (streaming) return map<float, StoreMode::unfenced>(out, count, one_vector);
  map<float>(out, count, one_vector);
}

void dequantize_levels8_here(const std::int8_t* in, std::size_t count, float step, float* out,
                             bool streaming) {
  dequantize_levels_to(in, count, step, out, streaming);
}
void dequantize_levels16_here(const std::int16_t* in, std::size_t count, float step, float* out,
                              bool streaming) {
  dequantize_levels_to(in, count, step, out, streaming);
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {

ValueRange value_range(const float* in, std::size_t count) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(value_range_here)) kTable[] =
      STARLING_TARGETS_OF(value_range_here);
  return choose(kTable)(in, count);
}

void quantize_uint8(const float* in, std::size_t count, ValueRange range, std::uint8_t* out) {
  const Uint8Steps steps(range);
  if (!rules::has_uint8_codes(range, steps)) {
    std::memset(out, 255, count);
    return;
  }
  static constexpr decltype(&HWY_STATIC_DISPATCH(quantize_uint8_here)) kTable[] =
      STARLING_TARGETS_OF(quantize_uint8_here);
  choose(kTable)(in, count, steps, out);
}

void dequantize_uint8(const std::uint8_t* in, std::size_t count, ValueRange range, float* out, Store store) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(dequantize_uint8_here)) kTable[] =
      STARLING_TARGETS_OF(dequantize_uint8_here);
  choose(kTable)(in, count, Uint8Steps(range), out, store == Store::streaming);
}

double pack_signs(const float* in, std::size_t count, std::uint8_t* bits) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(pack_signs_here)) kTable[] =
      STARLING_TARGETS_OF(pack_signs_here);
  return sum_in_pieces(count, [&](std::size_t begin, std::size_t piece, float* sums) {
    choose(kTable)(in + begin, piece, bits + begin / 8, sums);
  });
}

void unpack_signs(const std::uint8_t* bits, std::size_t count, float scale, float* out, Store store) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(unpack_signs_here)) kTable[] =
      STARLING_TARGETS_OF(unpack_signs_here);
  choose(kTable)(bits, count, scale, out, store == Store::streaming);
}

void random_words(std::uint64_t key, std::size_t first, std::size_t count, std::uint32_t* out) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(random_words_here)) kTable[] =
      STARLING_TARGETS_OF(random_words_here);
  choose(kTable)(key, first, count, out);
}

void quantize_levels(const float* in, const std::uint32_t* random, std::size_t count, float scale, int levels,
                     std::int8_t* out) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(quantize_levels8_here)) kTable[] =
      STARLING_TARGETS_OF(quantize_levels8_here);
  choose(kTable)(in, random, count, scale, levels, out);
}

void quantize_levels(const float* in, const std::uint32_t* random, std::size_t count, float scale, int levels,
                     std::int16_t* out) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(quantize_levels16_here)) kTable[] =
      STARLING_TARGETS_OF(quantize_levels16_here);
  choose(kTable)(in, random, count, scale, levels, out);
}

void dequantize_levels(const std::int8_t* in, std::size_t count, float step, float* out, Store store) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(dequantize_levels8_here)) kTable[] =
      STARLING_TARGETS_OF(dequantize_levels8_here);
  choose(kTable)(in, count, step, out, store == Store::streaming);
}

void dequantize_levels(const std::int16_t* in, std::size_t count, float step, float* out, Store store) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(dequantize_levels16_here)) kTable[] =
      STARLING_TARGETS_OF(dequantize_levels16_here);
  choose(kTable)(in, count, step, out, store == Store::streaming);
}

void finish_streaming() {
  hwy::FlushStream();
}

}  // namespace starling::kernel
#endif
