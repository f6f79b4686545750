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

template <typename T>
void dot_as(const T* a, const T* b, std::size_t count, T* sums) {
  const hn::CappedTag<T, 16> d;
  const std::size_t done = add_to_sums(d, count, sums, [&](std::size_t i) HWY_ATTR {
    return hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
  });
  for (std::size_t i = done; i < count; ++i) sums[i - done] += a[i] * b[i];
}

void dot_floats_here(const float* a, const float* b, std::size_t count, float* sums) {
  dot_as(a, b, count, sums);
}
void dot_doubles_here(const double* a, const double* b, std::size_t count, double* sums) {
  dot_as(a, b, count, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {

double dot(const float* a, const float* b, std::size_t count) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(dot_floats_here)) kTable[] =
      STARLING_TARGETS_OF(dot_floats_here);
  return sum_in_pieces(count, [&](std::size_t begin, std::size_t piece, float* sums) {
    choose(kTable)(a + begin, b + begin, piece, sums);
  });
}

double dot(const double* a, const double* b, std::size_t count) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(dot_doubles_here)) kTable[] =
      STARLING_TARGETS_OF(dot_doubles_here);
  return sum_in_pieces<double>(count, [&](std::size_t begin, std::size_t piece, double* sums) {
    choose(kTable)(a + begin, b + begin, piece, sums);
  });
}

}  // namespace starling::kernel
#endif
