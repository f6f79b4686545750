#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/linear_model.cpp"
#include "starling/kernel/linear_model.h"

#include <algorithm>
#include <cmath>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

// Eight lanes on every target, in one or several vectors, so that sums have the same order everywhere.
template <typename T>
using Eight = hn::CappedTag<T, kLinearColumns>;
template <typename T>
inline constexpr std::size_t kParts = kLinearColumns / hn::MaxLanes(Eight<T>());

constexpr std::size_t kChunk = 32;  // rows that stay in the L1 cache between their two uses
static_assert(kChunk % kLinearColumns == 0 && kChunk % kLinearRows == 0);

template <class D>
HWY_INLINE hn::TFromD<D> sum_of_lanes(D, hn::Vec<D> v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return sum_of_lanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  return hn::GetLane(v);
}

// Adds lanes l and l + 4 first, then l and l + 2, then the last two.
template <typename T>
HWY_INLINE T sum_of_eight(hn::Vec<Eight<T>> (&parts)[kParts<T>]) {
  for (std::size_t width = kParts<T> / 2; width > 0; width /= 2)
    for (std::size_t p = 0; p < width; ++p) parts[p] = hn::Add(parts[p], parts[p + width]);
  return sum_of_lanes(Eight<T>(), parts[0]);
}

template <typename T>
struct ExpTraits;
template <>
struct ExpTraits<double> {
  static constexpr double kMost = 700, kRound = 0x1.8p52;
  static constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr int kDegree = 13, kShift = 52;
  static constexpr std::uint64_t kOne = 0x3FF0000000000000;
};
template <>
struct ExpTraits<float> {
  static constexpr float kMost = 87, kRound = 0x1.8p23F;
  static constexpr float kLn2High = 0x1.62e4p-1F, kLn2Low = 0x1.7f7d1cp-20F;
  static constexpr int kDegree = 7, kShift = 23;
  static constexpr std::uint32_t kOne = 0x3F800000;
};

// exp(v) = 2^n exp(r) with |r| <= ln 2 / 2 and a Taylor polynomial, without fused multiply-adds, which some
// targets lack. Values that would overflow are clamped just below.
template <class D>
HWY_INLINE hn::Vec<D> exponential(D d, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  using Traits = ExpTraits<T>;
  const hn::RebindToUnsigned<D> du;
  v = hn::Max(hn::Min(v, hn::Set(d, Traits::kMost)), hn::Set(d, -Traits::kMost));
  // The addition rounds to an integer, which is then in the lowest bits.
  const auto shifted =
      hn::Add(hn::Mul(v, hn::Set(d, static_cast<T>(1.44269504088896340736))), hn::Set(d, Traits::kRound));
  const auto n = hn::Sub(shifted, hn::Set(d, Traits::kRound));
  const auto r =
      hn::Sub(hn::Sub(v, hn::Mul(n, hn::Set(d, Traits::kLn2High))), hn::Mul(n, hn::Set(d, Traits::kLn2Low)));
  auto sum = hn::Set(d, T{1});
  for (int k = Traits::kDegree; k > 0; --k)
    sum = hn::Add(hn::Mul(hn::Mul(sum, r), hn::Set(d, T{1} / static_cast<T>(k))), hn::Set(d, T{1}));
  const auto power =
      hn::Add(hn::ShiftLeft<Traits::kShift>(hn::BitCast(du, shifted)), hn::Set(du, Traits::kOne));
  return hn::Mul(sum, hn::BitCast(d, power));
}

// The margins of four rows at once, which share the loads of x.
template <typename T>
HWY_INLINE void margins_of_four(const float* const* rows, std::size_t columns, const T* x, T* margins) {
  const Eight<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(Eight<T>());
  hn::Vec<Eight<T>> sums[kLinearRows][kParts<T>];
  for (auto& sum : sums)
    for (auto& part : sum) part = hn::Zero(d);
  for (std::size_t k = 0; k < columns; k += kLinearColumns)
    for (std::size_t p = 0; p < kParts<T>; ++p) {
      const auto factor = hn::LoadU(d, x + k + p * kLanes);
      for (std::size_t row = 0; row < kLinearRows; ++row)
        sums[row][p] = hn::Add(sums[row][p], hn::Mul(load(d, rows[row] + k + p * kLanes), factor));
    }
  for (std::size_t row = 0; row < kLinearRows; ++row) margins[row] = sum_of_eight<T>(sums[row]);
}

// out += the sum of four rows times their factors.
template <typename T>
HWY_INLINE void add_four(const float* const* rows, std::size_t columns, const T* factors, T* out) {
  const Eight<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(Eight<T>());
  hn::Vec<Eight<T>> factor[kLinearRows];
  for (std::size_t row = 0; row < kLinearRows; ++row) factor[row] = hn::Set(d, factors[row]);
  for (std::size_t k = 0; k < columns; k += kLanes) {
    auto sum = hn::LoadU(d, out + k);
    for (std::size_t row = 0; row < kLinearRows; ++row)
      sum = hn::Add(sum, hn::Mul(load(d, rows[row] + k), factor[row]));
    hn::StoreU(sum, d, out + k);
  }
}

// Replaces margins by scale * loss'(margin).
template <typename T>
HWY_INLINE void slopes(LinearLoss loss, T* margins, const double* targets, std::size_t count, T scale) {
  const Eight<T> d;
  if (loss == LinearLoss::squares) {
    for (std::size_t i = 0; i < count; ++i) margins[i] = scale * (margins[i] - static_cast<T>(targets[i]));
    return;
  }
  const auto one = hn::Set(d, T{1});
  for (std::size_t i = 0; i < count; i += hn::MaxLanes(Eight<T>())) {
    const auto margin = hn::LoadU(d, margins + i);
    const auto slope = hn::Div(hn::Set(d, -scale), hn::Add(one, exponential(d, margin)));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(margin), margin, slope), d, margins + i);
  }
}

template <typename T>
void gradient_as(LinearLoss loss, const LinearSamples& samples, const void* at, double scale, void* result) {
  const T* x = static_cast<const T*>(at);
  T* out = static_cast<T*>(result);
  std::fill(out, out + samples.columns, T{0});
  const std::size_t count = samples.rows.size();
  for (std::size_t first = 0; first < count; first += kChunk) {
    const std::size_t chunk = std::min(kChunk, count - first);
    const float* const* rows = samples.rows.data() + first;
    alignas(64) T factors[kChunk] = {};
    for (std::size_t i = 0; i < chunk; i += kLinearRows)
      margins_of_four(rows + i, samples.columns, x, factors + i);
    const double* targets = loss == LinearLoss::squares ? samples.targets.data() + first : nullptr;
    const std::size_t whole = loss == LinearLoss::squares ? chunk : kChunk;
    slopes(loss, factors, targets, whole, static_cast<T>(scale));
    for (std::size_t i = 0; i < chunk; i += kLinearRows)
      add_four(rows + i, samples.columns, factors + i, out);
  }
}

void gradient_here(DType dtype, LinearLoss loss, const LinearSamples& samples, const void* x, double scale,
                   void* out) {
  if (dtype == DType::float64)
    gradient_as<double>(loss, samples, x, scale, out);
  else
    gradient_as<float>(loss, samples, x, scale, out);
}

// log(1 + exp(-m)) = max(-m, 0) + log(1 + exp(-|m|)). Only the product of a chunk's last terms needs a
// logarithm: it is at most 2^32.
double chunk_loss(const double* margins, std::size_t count) {
  const Eight<double> d;
  alignas(64) double terms[kChunk];
  for (std::size_t i = 0; i < kChunk; i += hn::MaxLanes(Eight<double>()))
    hn::StoreU(exponential(d, hn::Neg(hn::Abs(hn::LoadU(d, margins + i)))), d, terms + i);
  double sum = 0, product = 1;
  for (std::size_t i = 0; i < count; ++i) {
    sum += margins[i] < 0 ? -margins[i] : margins[i] - margins[i];  // a NaN stays a NaN
    product *= 1 + terms[i];
  }
  return sum + std::log(product);
}

double loss_here(LinearLoss loss, const LinearSamples& samples, const double* x) {
  double total = 0;
  const std::size_t count = samples.rows.size();
  for (std::size_t first = 0; first < count; first += kChunk) {
    const std::size_t chunk = std::min(kChunk, count - first);
    alignas(64) double margins[kChunk] = {};
    for (std::size_t i = 0; i < chunk; i += kLinearRows)
      margins_of_four(samples.rows.data() + first + i, samples.columns, x, margins + i);
    if (loss == LinearLoss::logistic) {
      total += chunk_loss(margins, chunk);
      continue;
    }
    for (std::size_t i = 0; i < chunk; ++i) {
      const double residual = margins[i] - samples.targets[first + i];
      total += 0.5 * residual * residual;
    }
  }
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {
namespace {

void check(LinearLoss loss, const LinearSamples& samples) {
  if (samples.columns % kLinearColumns != 0 || samples.rows.size() % kLinearRows != 0)
    throw InvalidArgument("linear model: columns come in multiples of 8 and rows of 4, not " +
                          std::to_string(samples.columns) + " and " + std::to_string(samples.rows.size()));
  if (loss == LinearLoss::squares && samples.targets.size() != samples.rows.size())
    throw InvalidArgument("linear model: squares need a target per row, not " +
                          std::to_string(samples.targets.size()) + " for " +
                          std::to_string(samples.rows.size()) + " rows");
}

}  // namespace

void linear_gradient(DType dtype, LinearLoss loss, const LinearSamples& samples, const void* x, double scale,
                     void* out) {
  check(loss, samples);
  if (dtype != DType::float64 && dtype != DType::float32)
    throw InvalidArgument("linear model: computes in float64 or float32, not " + name(dtype));
  static constexpr decltype(&HWY_STATIC_DISPATCH(gradient_here)) kTable[] =
      STARLING_TARGETS_OF(gradient_here);
  choose(kTable)(dtype, loss, samples, x, scale, out);
}

double linear_loss(LinearLoss loss, const LinearSamples& samples, const double* x) {
  check(loss, samples);
  static constexpr decltype(&HWY_STATIC_DISPATCH(loss_here)) kTable[] = STARLING_TARGETS_OF(loss_here);
  return choose(kTable)(loss, samples, x);
}

}  // namespace starling::kernel
#endif
