#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/combine.cpp"
#include "starling/kernel/combine.h"

#include <algorithm>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <limits>

#include "starling/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {

// A NaN gets no payload, which could reach into the bits that rounding to bfloat16 adds to.
template <typename T>
HWY_INLINE Lane<T> rounded_weight(double weight) {
  return weight == weight ? static_cast<Lane<T>>(weight) : std::numeric_limits<Lane<T>>::quiet_NaN();
}

// A few terms: pointers and weights stay in registers.
template <typename T, std::size_t kTerms>
class ShortSum {
 public:
  explicit ShortSum(std::span<const Term> terms) {
    for (std::size_t t = 0; t < kTerms; ++t) {
      data_[t] = static_cast<const T*>(terms[t].data);
      weight_[t] = rounded_weight<T>(terms[t].weight);
    }
  }

  template <class D, class Loader>
  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i, Loader loader) const {
    auto sum = hn::Mul(hn::Set(d, weight_[0]), loader(d, data_[0] + i));
    for (std::size_t t = 1; t < kTerms; ++t)
      sum = hn::Add(sum, hn::Mul(hn::Set(d, weight_[t]), loader(d, data_[t] + i)));
    return sum;
  }

 private:
  const T* data_[kTerms];
  Lane<T> weight_[kTerms];
};

template <typename T>
class LongSum {
 public:
  explicit LongSum(std::span<const Term> terms) : terms_(terms) {}

  template <class D, class Loader>
  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i, Loader loader) const {
    auto sum = product(d, terms_[0], i, loader);
    for (std::size_t t = 1; t < terms_.size(); ++t) sum = hn::Add(sum, product(d, terms_[t], i, loader));
    return sum;
  }

 private:
  template <class D, class Loader>
  static HWY_INLINE hn::Vec<D> product(D d, const Term& term, std::size_t i, Loader loader) {
    const auto weight = hn::Set(d, rounded_weight<T>(term.weight));
    return hn::Mul(weight, loader(d, static_cast<const T*>(term.data) + i));
  }

  std::span<const Term> terms_;
};

// Beside many sources, past the cache was not faster (measured); so the long sum has no such loop.
template <typename T, typename Sum>
void write(T* out, std::size_t count, bool streaming, const Sum& sum) {
  if constexpr (!std::is_same_v<Sum, LongSum<T>>)
    if (streaming) return map<Lane<T>, Way::streaming>(out, count, sum);
  map<Lane<T>>(out, count, sum);
}

template <typename T>
void combine_as(void* to, std::span<const Term> terms, std::size_t count, bool streaming) {
  T* out = static_cast<T*>(to);
  switch (terms.size()) {
    case 0:
      std::fill_n(out, count, T(0));
      return;
    case 1:
      return write(out, count, streaming, ShortSum<T, 1>(terms));
    case 2:
      return write(out, count, streaming, ShortSum<T, 2>(terms));
    case 3:
      return write(out, count, streaming, ShortSum<T, 3>(terms));
    case 4:
      return write(out, count, streaming, ShortSum<T, 4>(terms));
    default:
      return write(out, count, streaming, LongSum<T>(terms));
  }
}

void combine_here(DType dtype, void* out, std::span<const Term> terms, std::size_t count, bool streaming) {
  dispatch(dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (is_floating_element<T>) combine_as<T>(out, terms, count, streaming);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {

namespace {

bool worth_streaming(const void* out, std::span<const Term> terms, std::size_t bytes) {
  if (bytes * (terms.size() + 1) < kStreamingBytes) return false;
  return std::none_of(terms.begin(), terms.end(), [&](const Term& term) { return term.data == out; });
}

}  // namespace

void combine(DType dtype, void* out, std::span<const Term> terms, std::size_t count, Store store) {
  if (!is_floating(dtype))
    throw InvalidArgument(
        "combine: weights need a floating dtype (float64, float32, float16, bfloat16), not " + name(dtype));
  const bool streaming = store == Store::automatic ? worth_streaming(out, terms, count * size_of(dtype))
                                                   : store == Store::streaming;
  static constexpr decltype(&HWY_STATIC_DISPATCH(combine_here)) kTable[] = STARLING_TARGETS_OF(combine_here);
  choose(kTable)(dtype, out, terms, count, streaming);
}

}  // namespace starling
#endif
