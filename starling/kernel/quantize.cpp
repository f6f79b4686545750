#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/quantize.cpp"
#include "starling/kernel/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <limits>

#include "starling/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

constexpr std::size_t kMostLanes = HWY_MAX_BYTES / sizeof(float);

// Several vectors at once, since a minimum takes longer than it takes to start the next.
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
    // The sum is NaN where a summand is; infinities of both signs are sorted out below.
    strange = hn::Or(strange, hn::IsNaN(hn::Add(hn::Add(a, b), hn::Add(c, e))));
  }
  bool nan = !hn::AllFalse(d, strange);
  if (nan) nan = std::any_of(in, in + i, [](float x) { return x != x; });
  for (std::size_t k = i; k < count; ++k) nan = nan || in[k] != in[k];
  if (nan) return {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::quiet_NaN()};
  least0 = hn::Min(hn::Min(least0, least1), hn::Min(least2, least3));
  greatest0 = hn::Max(hn::Max(greatest0, greatest1), hn::Max(greatest2, greatest3));
  HWY_ALIGN float low[kMostLanes], high[kMostLanes];
  hn::Store(least0, d, low);
  hn::Store(greatest0, d, high);
  ValueRange range{*std::min_element(low, low + lanes), *std::max_element(high, high + lanes)};
  for (; i < count; ++i) range = {std::min(range.least, in[i]), std::max(range.greatest, in[i])};
  return {range.least + 0.0F, range.greatest + 0.0F};  // -0 + 0 is +0
}

// All values are finite here, so that converting to integers is defined.
void quantize_uint8_here(const float* in, std::size_t count, Uint8Steps steps, std::uint8_t* out) {
  const auto one_vector = [&](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const auto scaled = hn::Round(hn::Mul(hn::LoadU(d, in + i), hn::Set(d, steps.scale)));
    const auto above = hn::Sub(hn::Min(scaled, hn::Set(d, steps.upper)), hn::Set(d, steps.lower));
    const auto held = hn::Min(hn::Max(above, hn::Zero(d)), hn::Set(d, 255.0F));
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, held)), d8, out + i);
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
  if (streaming) return map<float, Way::streaming>(out, count, one_vector);
  map<float>(out, count, one_vector);
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

ValueRange value_range(const float* in, std::size_t count) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(value_range_here)) kTable[] =
      STARLING_TARGETS_OF(value_range_here);
  return choose(kTable)(in, count);
}

Uint8Steps::Uint8Steps(ValueRange range)
    : scale(255.0F / (range.greatest - range.least + 1e-7F)),
      upper(std::nearbyint(range.greatest * scale)),
      lower(upper - 255.0F) {}

void quantize_uint8(const float* in, std::size_t count, ValueRange range, std::uint8_t* out) {
  const Uint8Steps steps(range);
  if (!std::isfinite(range.least) || !std::isfinite(range.greatest) || !std::isfinite(steps.upper)) {
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

}  // namespace starling
#endif
