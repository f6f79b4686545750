#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/int8.cpp"
#include "starling/kernel/int8.h"

#include <algorithm>
#include <cstring>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/lanes-inl.h"
#include "starling/kernel/quantize.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

void quantize_int8_here(const float* in, std::size_t count, float middle, float scale, std::int8_t* out) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(out);
  const auto one_vector = [&](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const auto scaled = hn::Mul(hn::Sub(hn::LoadU(d, in + i), hn::Set(d, middle)), hn::Set(d, scale));
    // Adding 1.5 * 2^23 rounds q to an integer, whose two's complement is then in the last byte.
    const auto code = hn::BitCast(du, hn::Add(scaled, hn::Set(d, 0x1.8p23F)));
    hn::StoreU(hn::TruncateTo(d8, code), d8, bytes + i);
  };
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) one_vector(d, i);
  for (; i < count; ++i) one_vector(one, i);
}

// kTerms = 0: any number of terms.
template <std::size_t kTerms>
void around_int8(float* out, const float* x, const Int8Run& own, std::span<const Int8Term> given,
                 std::size_t count) {
  Int8Term kept[kTerms + 1];
  for (std::size_t t = 0; t < kTerms; ++t) kept[t] = given[t];
  const Int8Term* terms = kTerms > 0 ? kept : given.data();
  const std::size_t number = kTerms > 0 ? kTerms : given.size();
  map<float>(out, count, [&](auto d, std::size_t i, Whole) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<std::int8_t, decltype(d)> d8;
    const auto value = [&](const Int8Run& run) HWY_ATTR {
      const auto code = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, run.codes + i)));
      return hn::Add(hn::Mul(code, hn::Set(d, run.grid.step)), hn::Set(d, run.grid.middle));
    };
    const auto center = value(own);
    const auto pull = [&](const Int8Term& term) HWY_ATTR {
      return hn::Mul(hn::Set(d, static_cast<float>(term.weight)), hn::Sub(center, value(term.run)));
    };
    auto sum = pull(terms[0]);
    for (std::size_t t = 1; t < number; ++t) sum = hn::Add(sum, pull(terms[t]));
    // Subtracted, so that x without differences keeps even the sign of zero.
    return hn::Sub(x == nullptr ? hn::Zero(d) : hn::LoadU(d, x + i), sum);
  });
}

void combine_around_int8_here(float* out, const float* x, const Int8Run& own, std::span<const Int8Term> terms,
                              std::size_t count) {
  switch (terms.size()) {
    case 1:
      return around_int8<1>(out, x, own, terms, count);
    case 2:
      return around_int8<2>(out, x, own, terms, count);
    case 3:
      return around_int8<3>(out, x, own, terms, count);
    default:
      return around_int8<0>(out, x, own, terms, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {

Int8Grid quantize_int8(const float* in, std::size_t count, std::int8_t* out) {
  const auto [grid, factor] = rules::int8_scale(value_range(in, count));
  if (factor == 0) {
    std::memset(out, 0, count);
    return grid;
  }
  static constexpr decltype(&HWY_STATIC_DISPATCH(quantize_int8_here)) kTable[] =
      STARLING_TARGETS_OF(quantize_int8_here);
  choose(kTable)(in, count, grid.middle, factor, out);
  return grid;
}

void combine_around_int8(float* out, const float* x, const Int8Run& own, std::span<const Int8Term> terms,
                         std::size_t count) {
  if (terms.empty()) {
    if (count == 0 || out == x) return;
    x == nullptr ? std::memset(out, 0, count * sizeof(float)) : std::memcpy(out, x, count * sizeof(float));
    return;
  }
  static constexpr decltype(&HWY_STATIC_DISPATCH(combine_around_int8_here)) kTable[] =
      STARLING_TARGETS_OF(combine_around_int8_here);
  choose(kTable)(out, x, own, terms, count);
}

}  // namespace starling::kernel
#endif
