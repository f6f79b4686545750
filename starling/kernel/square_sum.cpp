#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/square_sum.cpp"
#include "starling/kernel/square_sum.h"

#include <algorithm>
#include <array>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/lanes-inl.h"
#include "starling/kernel/update.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

// sums[k] = the sum of the squares of column k of a strip; see kernel/square_sum.h. Sums stay in registers:
// in memory they would delay reads at addresses that differ by a multiple of a page.
template <typename T>
void add_strip(const T* data, std::size_t count, double* sums) {
  const hn::ScalableTag<double> d;
  const std::size_t lanes = hn::Lanes(d), whole = count / kSquareColumns * kSquareColumns;
  const auto square = [&](std::size_t i) HWY_ATTR {
    const auto x = load(d, data + i);
    return hn::Mul(x, x);
  };
  for (std::size_t k = 0; k < kSquareColumns; k += 4 * lanes) {
    auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for (std::size_t i = k; i < whole; i += kSquareColumns) {
      s0 = hn::Add(s0, square(i));
      s1 = hn::Add(s1, square(i + lanes));
      s2 = hn::Add(s2, square(i + 2 * lanes));
      s3 = hn::Add(s3, square(i + 3 * lanes));
    }
    hn::StoreU(s0, d, sums + k);
    hn::StoreU(s1, d, sums + k + lanes);
    hn::StoreU(s2, d, sums + k + 2 * lanes);
    hn::StoreU(s3, d, sums + k + 3 * lanes);
  }
  for (std::size_t i = whole; i < count; ++i)
    sums[i - whole] += static_cast<double>(data[i]) * static_cast<double>(data[i]);
}

// The sum of squares of a chunk.
template <typename T>
double squares_as(const T* data, std::size_t count, std::size_t strip) {
  std::array<double, kSquareSums> sums;
  std::size_t n = 0;
  for (std::size_t begin = 0; begin < count; begin += strip, n += kSquareColumns)
    add_strip(data + begin, std::min(strip, count - begin), &sums[n]);
  return fold_sums(sums.data(), n);
}
double squares_here(DType dtype, const void* data, std::size_t count, std::size_t strip) {
  return dtype == DType::float64 ? squares_as(static_cast<const double*>(data), count, strip)
                                 : squares_as(static_cast<const float*>(data), count, strip);
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {

double sum_of_squares(DType dtype, const void* data, std::size_t count) {
  if (dtype != DType::float32 && dtype != DType::float64)
    throw InvalidArgument("sum of squares: parameters are float32 or float64, not " + name(dtype));
  static constexpr decltype(&HWY_STATIC_DISPATCH(squares_here)) kTable[] = STARLING_TARGETS_OF(squares_here);
  const std::size_t strip = square_strip(count);
  const std::size_t chunk = kSquareStrips * strip;
  std::array<double, kMostSquareChunks> chunks;
  std::size_t n = 0;
  for (std::size_t begin = 0; begin < count; begin += chunk)
    chunks[n++] = choose(kTable)(dtype, static_cast<const std::byte*>(data) + begin * size_of(dtype),
                                 std::min(chunk, count - begin), strip);
  return fold_sums(chunks.data(), n);
}

}  // namespace starling::kernel
#endif
