#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/dot.cpp"
#include "starling/kernel/dot.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/lanes-inl.h"
#include "starling/kernel/sums.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

void dot_here(const float* a, const float* b, std::size_t count, float* sums) {
  const hn::CappedTag<float, 16> d;
  const std::size_t done = add_to_sums(d, count, sums, [&](std::size_t i) HWY_ATTR {
    return hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
  });
  for (std::size_t i = done; i < count; ++i) sums[i - done] += a[i] * b[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {

double dot(const float* a, const float* b, std::size_t count) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(dot_here)) kTable[] = STARLING_TARGETS_OF(dot_here);
  return sum_in_pieces(count, [&](std::size_t begin, std::size_t piece, float* sums) {
    choose(kTable)(a + begin, b + begin, piece, sums);
  });
}

}  // namespace starling::kernel
#endif
