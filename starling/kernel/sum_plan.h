#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "starling/kernel/average.h"
#include "starling/kernel/element_rules.h"

// How a weighted sum is computed: its form, its terms and their weights. One definition for the host and for
// device code, which plans after the terms' flags have been read.

namespace starling::kernel {

/// The form of a sum of `n` terms with weights weight(t). A NaN compares false and makes no average.
template <typename Weight>
STARLING_ELEMENT_RULE SumForm sum_form(DType dtype, std::size_t n, const Weight& weight) {
  if (n < 2) return SumForm::products;
  const double unit = dtype == DType::float64 ? 0x1p-53 : 0x1p-24;
  const auto number = static_cast<double>(n);
  double sum = 0;
  bool equal = true;
  for (std::size_t t = 0; t < n; ++t) {
    const double one = weight(t);
    if (!(one >= 0)) return SumForm::products;
    sum += one;
    const double off = number * one - 1;
    equal = equal && off <= 2 * unit && off >= -2 * unit;
  }
  const double off = sum - 1;
  if (!(off <= number * unit && off >= -(number * unit))) return SumForm::products;
  // 16-bit types are computed in float32, where they do not notice the rounding of the weights.
  const bool is_short = dtype == DType::float16 || dtype == DType::bfloat16;
  const bool divides = equal && (n & (n - 1)) != 0 && !is_short;
  return divides ? SumForm::mean : SumForm::average;
}

/// The weight in the type that is computed in. A NaN gets no payload, which could reach the bits that
/// rounding to bfloat16 adds to.
template <typename T>
STARLING_ELEMENT_RULE T rounded_weight(double weight) {
  return weight == weight ? static_cast<T>(weight) : std::numeric_limits<T>::quiet_NaN();
}

/// The largest number of terms that a device sums up in one pass.
inline constexpr int kMostPlannedTerms = 32;

/// The terms of a sum as the caller gave them.
struct GivenSum {
  const void* data[kMostPlannedTerms];
  double weight[kMostPlannedTerms];
  int count;
  DType dtype;
  int own = 0;  // the first term without a flag, which is always present
};

/// A sum as kernels compute it: terms in the order of computation, with weights in the type T that is
/// computed in.
template <typename T>
struct PlannedSum {
  const void* data[kMostPlannedTerms];
  T weight[kMostPlannedTerms];
  int count;
  SumForm form;
};

namespace detail {

struct WeightsOf {
  const double* weight;
  STARLING_ELEMENT_RULE double operator()(std::size_t t) const { return weight[t]; }
};

}  // namespace detail

/// Plans the sum of the terms that have arrived: bit t of `missing` means that term t has not. The own term
/// (without it, the first that has arrived) gets the weights of the missing ones, added in float64 in the
/// order of the terms. Without any term the sum is zero.
template <typename T>
STARLING_ELEMENT_RULE void plan_sum(const GivenSum& given, std::uint32_t missing, PlannedSum<T>& plan) {
  double weight[kMostPlannedTerms];
  int n = 0;
  int own = 0;
  for (int t = 0; t < given.count; ++t) {
    if ((missing >> t & 1U) != 0) continue;
    if (t == given.own) own = n;
    plan.data[n] = given.data[t];
    weight[n++] = given.weight[t];
  }
  plan.count = n;
  plan.form = SumForm::products;
  if (n == 0) return;
  for (int t = 0; t < given.count; ++t)
    if ((missing >> t & 1U) != 0) weight[own] += given.weight[t];
  plan.form = sum_form(given.dtype, static_cast<std::size_t>(n), detail::WeightsOf{weight});
  // An average is computed relative to its first term with a weight above zero.
  if (plan.form == SumForm::average && weight[0] == 0) {
    int first = 1;
    while (weight[first] == 0) ++first;
    const void* const data = plan.data[first];
    const double its_weight = weight[first];
    for (int t = first; t > 0; --t) {
      plan.data[t] = plan.data[t - 1];
      weight[t] = weight[t - 1];
    }
    plan.data[0] = data;
    weight[0] = its_weight;
  }
  for (int t = 0; t < n; ++t) plan.weight[t] = rounded_weight<T>(weight[t]);
}

/// A sum that is NaN, because a term that it requires has not arrived.
template <typename T>
STARLING_ELEMENT_RULE void plan_nan(const GivenSum& given, PlannedSum<T>& plan) {
  plan.data[0] = given.data[given.own];
  plan.weight[0] = std::numeric_limits<T>::quiet_NaN();
  plan.count = 1;
  plan.form = SumForm::products;
}

/// The plan of combine_around(): differences to the first term, which is always present. Missing terms are
/// left out; their weights would go to the center, whose difference to itself is zero.
template <typename T>
STARLING_ELEMENT_RULE void plan_differences(const GivenSum& given, std::uint32_t missing,
                                            PlannedSum<T>& plan) {
  plan.count = 0;
  plan.form = SumForm::average;
  for (int t = 0; t < given.count; ++t) {
    if ((missing >> t & 1U) != 0) continue;
    plan.data[plan.count] = given.data[t];
    plan.weight[plan.count++] = static_cast<T>(given.weight[t]);
  }
}

/// One element of a planned sum, term by term: the same bits as rules::products(), average() and mean(). A
/// sum of differences starts from -0.0, which changes nothing that is added to it.
template <typename T>
class RunningSum {
 public:
  /// Starts with the plan's first term.
  STARLING_ELEMENT_RULE RunningSum(SumForm form, T weight, T first)
      : form_(form), first_(first), sum_(form == SumForm::products ? weight * first : T(-0.0)) {}

  STARLING_ELEMENT_RULE void add(T weight, T x) {
    const T value = form_ == SumForm::products ? x : first_ - x;
    sum_ = sum_ + (form_ == SumForm::mean ? value : weight * value);
  }
  /// The result for `n` terms.
  STARLING_ELEMENT_RULE T result(int n) const {
    if (form_ == SumForm::products) return sum_;
    return first_ - (form_ == SumForm::mean ? sum_ / static_cast<T>(n) : sum_);
  }

  /// The partial sum, and a sum that continues from one.
  STARLING_ELEMENT_RULE T so_far() const { return sum_; }
  STARLING_ELEMENT_RULE static RunningSum resumed(SumForm form, T first, T so_far) {
    RunningSum running(form, T(0), first);
    running.sum_ = so_far;
    return running;
  }

 private:
  SumForm form_;
  T first_;
  T sum_;
};

}  // namespace starling::kernel
