// Weighted sums of blocks, a vector at a time, for the kernels' sources; see kernel/average.h. Seen once per
// target of Highway, as lanes-inl.h.

#include <cstddef>
#include <hwy/highway.h>
#include <span>

#include "starling/kernel/lanes-inl.h"
#include "starling/kernel/sum_plan.h"

#if defined(STARLING_KERNEL_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STARLING_KERNEL_SUMS_INL_H_
#undef STARLING_KERNEL_SUMS_INL_H_
#else
#define STARLING_KERNEL_SUMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

// A few terms: pointers and weights stay in registers.
template <typename T, std::size_t kTerms, SumForm kForm = SumForm::products>
class ShortSum {
 public:
  explicit ShortSum(std::span<const Term> terms) {
    for (std::size_t t = 0; t < kTerms; ++t) {
      data_[t] = static_cast<const T*>(terms[t].data);
      weight_[t] = rounded_weight<Element<T>>(terms[t].weight);
    }
  }

  template <class D, class Loader>
  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i, Loader loader) const {
    const auto first = loader(d, data_[0] + i);
    if constexpr (kForm == SumForm::products) {
      auto sum = hn::Mul(hn::Set(d, weight_[0]), first);
      for (std::size_t t = 1; t < kTerms; ++t)
        sum = hn::Add(sum, hn::Mul(hn::Set(d, weight_[t]), loader(d, data_[t] + i)));
      return sum;
    } else {
      auto sum = pull(d, 1, first, i, loader);
      for (std::size_t t = 2; t < kTerms; ++t) sum = hn::Add(sum, pull(d, t, first, i, loader));
      if constexpr (kForm == SumForm::mean) sum = hn::Div(sum, hn::Set(d, Element<T>(kTerms)));
      return hn::Sub(first, sum);
    }
  }

 private:
  // Subtracted from the first in the end, so that equal values keep even the sign of zero.
  template <class D, class V, class Loader>
  HWY_INLINE V pull(D d, std::size_t t, V first, std::size_t i, Loader loader) const {
    const V difference = hn::Sub(first, loader(d, data_[t] + i));
    return kForm == SumForm::mean ? difference : hn::Mul(hn::Set(d, weight_[t]), difference);
  }

  const T* data_[kTerms];
  Element<T> weight_[kTerms];
};

template <typename T>
class LongSum {
 public:
  LongSum(std::span<const Term> terms, SumForm form) : terms_(terms), form_(form) {}

  template <class D, class Loader>
  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i, Loader loader) const {
    const auto first = value(d, 0, i, loader);
    if (form_ == SumForm::mean) {
      auto sum = hn::Sub(first, value(d, 1, i, loader));
      for (std::size_t t = 2; t < terms_.size(); ++t)
        sum = hn::Add(sum, hn::Sub(first, value(d, t, i, loader)));
      return hn::Sub(first, hn::Div(sum, hn::Set(d, static_cast<Element<T>>(terms_.size()))));
    }
    if (form_ == SumForm::average) {
      auto sum = hn::Mul(weight(d, 1), hn::Sub(first, value(d, 1, i, loader)));
      for (std::size_t t = 2; t < terms_.size(); ++t)
        sum = hn::Add(sum, hn::Mul(weight(d, t), hn::Sub(first, value(d, t, i, loader))));
      return hn::Sub(first, sum);
    }
    auto sum = hn::Mul(weight(d, 0), first);
    for (std::size_t t = 1; t < terms_.size(); ++t)
      sum = hn::Add(sum, hn::Mul(weight(d, t), value(d, t, i, loader)));
    return sum;
  }

 private:
  template <class D, class Loader>
  HWY_INLINE hn::Vec<D> value(D d, std::size_t t, std::size_t i, Loader loader) const {
    return loader(d, static_cast<const T*>(terms_[t].data) + i);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> weight(D d, std::size_t t) const {
    return hn::Set(d, rounded_weight<Element<T>>(terms_[t].weight));
  }

  std::span<const Term> terms_;
  SumForm form_;
};

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#endif
