#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/matrices.cpp"
#include "starling/kernel/matrices.h"

#include <algorithm>
#include <cmath>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <vector>

#include "starling/kernel/dot.h"
#include "starling/kernel/lanes-inl.h"
#include "starling/kernel/square_sum.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

template <std::size_t kTerms, typename T>
void add_terms(T* y, const T* x, std::size_t step, const T* weights, std::size_t weight_step,
               std::size_t count) {
  map<T>(y, count, [&](auto d, std::size_t i, auto loader) HWY_ATTR {
    auto sum = loader(d, y + i);
    for (std::size_t t = 0; t < kTerms; ++t)
      sum = hn::Add(sum, hn::Mul(hn::Set(d, weights[t * weight_step]), loader(d, x + t * step + i)));
    return sum;
  });
}

// y += weights[t * weight_step] * (x + t * step), one term after the other.
template <typename T>
void add_rows(T* y, const T* x, std::size_t step, const T* weights, std::size_t weight_step,
              std::size_t terms, std::size_t count) {
  for (; terms >= 4; terms -= 4, x += 4 * step, weights += 4 * weight_step)
    add_terms<4>(y, x, step, weights, weight_step, count);
  for (; terms > 0; --terms, x += step, weights += weight_step)
    add_terms<1>(y, x, step, weights, weight_step, count);
}

void add_floats_here(float* y, const float* x, std::size_t step, const float* weights,
                     std::size_t weight_step, std::size_t terms, std::size_t count) {
  add_rows(y, x, step, weights, weight_step, terms, count);
}
void add_doubles_here(double* y, const double* x, std::size_t step, const double* weights,
                      std::size_t weight_step, std::size_t terms, std::size_t count) {
  add_rows(y, x, step, weights, weight_step, terms, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {
namespace {

// Columns at a time, so that a few rows of them stay in the fastest cache.
constexpr std::size_t kTileColumns = 1024;

void add_rows(float* y, const float* x, std::size_t step, const float* weights, std::size_t weight_step,
              std::size_t terms, std::size_t count) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(add_floats_here)) kTable[] =
      STARLING_TARGETS_OF(add_floats_here);
  choose(kTable)(y, x, step, weights, weight_step, terms, count);
}
void add_rows(double* y, const double* x, std::size_t step, const double* weights, std::size_t weight_step,
              std::size_t terms, std::size_t count) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(add_doubles_here)) kTable[] =
      STARLING_TARGETS_OF(add_doubles_here);
  choose(kTable)(y, x, step, weights, weight_step, terms, count);
}

// Calls body with the element type, float32 or float64.
template <typename Body>
void as_factors(DType dtype, const Body& body) {
  dtype == DType::float64 ? body(double{}) : body(float{});
}

template <typename T>
void multiply_transposed_as(T* q, const T* m, const T* p, const FactorShape& shape) {
  constexpr std::size_t kRowsAtOnce = 4;
  std::vector<T> slab;
  std::vector<double> eight;
  for (std::size_t begin = 0; begin < shape.columns; begin += kTileColumns) {
    const std::size_t width = std::min(kTileColumns, shape.columns - begin), sums = shape.rank * width;
    eight.assign(8 * sums, 0);
    for (std::size_t first = 0; first < shape.rows; first += kSlabRows) {
      const std::size_t last = std::min(first + kSlabRows, shape.rows);
      slab.assign(sums, 0);
      for (std::size_t row = first; row < last; row += kRowsAtOnce)
        for (std::size_t r = 0; r < shape.rank; ++r)
          add_rows(slab.data() + r * width, m + row * shape.columns + begin, shape.columns,
                   p + r * shape.rows + row, 1, std::min(kRowsAtOnce, last - row), width);
      double* totals = eight.data() + first / kSlabRows % 8 * sums;
      for (std::size_t k = 0; k < sums; ++k) totals[k] += static_cast<double>(slab[k]);
    }
    for (std::size_t k = 0; k < sums; ++k) {
      double of_column[8];
      for (std::size_t s = 0; s < 8; ++s) of_column[s] = eight[s * sums + k];
      q[k / width * shape.columns + begin + k % width] = static_cast<T>(sum_of_eight(of_column));
    }
  }
}

template <typename T>
double wide_dot(const T* a, const T* b, std::size_t count) {
  double sums[kSquareSums] = {};
  for (std::size_t begin = 0; begin < count; begin += kSquareSums) {
    const std::size_t n = std::min(kSquareSums, count - begin);
    for (std::size_t k = 0; k < n; ++k)
      sums[k] += static_cast<double>(a[begin + k]) * static_cast<double>(b[begin + k]);
  }
  return fold_sums(sums, kSquareSums);
}

template <typename T>
void orthonormalize_as(T* factor, std::size_t rows, std::size_t rank) {
  for (std::size_t r = 0; r < rank; ++r) {
    T* own = factor + r * rows;
    for (const T* earlier = factor; earlier < own; earlier += rows) {
      const double along = wide_dot(earlier, own, rows);
      for (std::size_t i = 0; i < rows; ++i)
        own[i] = static_cast<T>(static_cast<double>(own[i]) - along * static_cast<double>(earlier[i]));
    }
    const double norm = std::sqrt(wide_dot(own, own, rows));
    if (norm > 0)
      for (std::size_t i = 0; i < rows; ++i) own[i] = static_cast<T>(static_cast<double>(own[i]) / norm);
  }
}

}  // namespace

void multiply(Buffer p, ConstBuffer m, ConstBuffer q, std::size_t rank) {
  const FactorShape shape = factor_shape("multiply", m, p, q, rank);
  as_factors(p.dtype, [&]<typename T>(T) {
    for (std::size_t row = 0; row < shape.rows; ++row)
      for (std::size_t r = 0; r < rank; ++r)
        p.host<T>()[r * shape.rows + row] = static_cast<T>(
            dot(m.host<T>() + row * shape.columns, q.host<T>() + r * shape.columns, shape.columns));
  });
}

void multiply_transposed(Buffer q, ConstBuffer m, ConstBuffer p, std::size_t rank) {
  const FactorShape shape = factor_shape("multiply_transposed", m, p, q, rank);
  as_factors(q.dtype,
             [&]<typename T>(T) { multiply_transposed_as(q.host<T>(), m.host<T>(), p.host<T>(), shape); });
}

void multiply_factors(Buffer m, ConstBuffer p, ConstBuffer q, std::size_t rank) {
  const FactorShape shape = factor_shape("multiply_factors", m, p, q, rank);
  as_factors(m.dtype, [&]<typename T>(T) {
    for (std::size_t row = 0; row < shape.rows; ++row)
      for (std::size_t begin = 0; begin < shape.columns; begin += kTileColumns) {
        const std::size_t width = std::min(kTileColumns, shape.columns - begin);
        T* to = m.host<T>() + row * shape.columns + begin;
        std::fill_n(to, width, T(0));
        add_rows(to, q.host<T>() + begin, shape.columns, p.host<T>() + row, shape.rows, rank, width);
      }
  });
}

void orthonormalize(Buffer factor, std::size_t rank) {
  check_factor("orthonormalize", factor, rank);
  as_factors(factor.dtype,
             [&]<typename T>(T) { orthonormalize_as(factor.host<T>(), factor.count / rank, rank); });
}

}  // namespace starling::kernel
#endif
