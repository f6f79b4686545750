#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/dot.cpp"
#include "starling/kernel/dot.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/lanes-inl.h"
#include "starling/kernel/sums.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

void dot_here(const float* a, const float* b, std::size_t count, float* sums) {
  const hn::CappedTag<float, 16> d;
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (std::size_t k = 0; k < kSums; k += hn::Lanes(d)) {
      const auto product = hn::Mul(hn::LoadU(d, a + i + k), hn::LoadU(d, b + i + k));
      hn::StoreU(hn::Add(hn::LoadU(d, sums + k), product), d, sums + k);
    }
  for (std::size_t k = 0; i + k < count; ++k) sums[k] += a[i + k] * b[i + k];
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

double dot(const float* a, const float* b, std::size_t count) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(dot_here)) kTable[] = STARLING_TARGETS_OF(dot_here);
  return sum_in_pieces(count, [&](std::size_t begin, std::size_t piece, float* sums) {
    choose(kTable)(a + begin, b + begin, piece, sums);
  });
}

}  // namespace starling
#endif
