#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/finite.cpp"
#include "starling/kernel/finite.h"

#include <algorithm>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

// Infinities and NaNs have an exponent of all ones: adding one carries into the sign bit.
template <typename Bits>
bool exponents_below(const void* data, std::size_t count, Bits exponent, Bits lowest) {
  const auto* bits = static_cast<const Bits*>(data);
  const hn::ScalableTag<Bits> d;
  const std::size_t lanes = hn::Lanes(d);
  auto carried = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    carried =
        hn::Or(carried, hn::Add(hn::And(hn::LoadU(d, bits + i), hn::Set(d, exponent)), hn::Set(d, lowest)));
  Bits rest = 0;
  for (; i < count; ++i) rest = static_cast<Bits>(rest | ((bits[i] & exponent) + lowest));
  const Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  return (rest & sign) == 0 && hn::AllTrue(d, hn::Eq(hn::And(carried, hn::Set(d, sign)), hn::Zero(d)));
}

bool all_finite_here(DType dtype, const void* data, std::size_t count) {
  switch (dtype) {
    case DType::float64:
      return exponents_below<std::uint64_t>(data, count, 0x7ff0'0000'0000'0000, 0x0010'0000'0000'0000);
    case DType::float32:
      return exponents_below<std::uint32_t>(data, count, 0x7f80'0000, 0x0080'0000);
    case DType::float16:
      return exponents_below<std::uint16_t>(data, count, 0x7c00, 0x0400);
    case DType::bfloat16:
      return exponents_below<std::uint16_t>(data, count, 0x7f80, 0x0080);
    default:
      return true;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {

bool all_finite(DType dtype, const void* data, std::size_t count) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(all_finite_here)) kTable[] =
      STARLING_TARGETS_OF(all_finite_here);
  return choose(kTable)(dtype, data, count);
}

}  // namespace starling::kernel
#endif
