#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/combine.cpp"
#include "starling/kernel/combine.h"

#include <algorithm>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/average.h"
#include "starling/kernel/sum_plan.h"
#include "starling/kernel/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

// Beside many sources, past the cache was not faster (measured); so the long sum has no such loop.
template <typename T, typename Sum>
void write(T* out, std::size_t count, bool streaming, const Sum& sum) {
  if constexpr (!std::is_same_v<Sum, LongSum<T>>)
    if (streaming) return map<Element<T>, StoreMode::streaming>(out, count, sum);
  map<Element<T>>(out, count, sum);
}

template <typename T>
void combine_as(void* to, std::span<const Term> terms, SumForm form, std::size_t count, bool streaming) {
  T* out = static_cast<T*>(to);
  switch (terms.size()) {
    case 0:
      std::fill_n(out, count, T(0));
      return;
    case 1:
      return write(out, count, streaming, ShortSum<T, 1>(terms));
    case 2:
      if (form == SumForm::products) return write(out, count, streaming, ShortSum<T, 2>(terms));
      return write(out, count, streaming, ShortSum<T, 2, SumForm::average>(terms));
    case 3:
      if (form == SumForm::products) return write(out, count, streaming, ShortSum<T, 3>(terms));
      if (form == SumForm::mean) return write(out, count, streaming, ShortSum<T, 3, SumForm::mean>(terms));
      return write(out, count, streaming, ShortSum<T, 3, SumForm::average>(terms));
    case 4:
      if (form == SumForm::products) return write(out, count, streaming, ShortSum<T, 4>(terms));
      return write(out, count, streaming, ShortSum<T, 4, SumForm::average>(terms));
    default:
      return write(out, count, streaming, LongSum<T>(terms, form));
  }
}

void combine_here(DType dtype, void* out, std::span<const Term> terms, SumForm form, std::size_t count,
                  bool streaming) {
  dispatch(dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (is_floating_element<T>) combine_as<T>(out, terms, form, count, streaming);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {

namespace {

bool worth_streaming(const void* out, std::span<const Term> terms, std::size_t bytes) {
  if (bytes * (terms.size() + 1) < kStreamingBytes) return false;
  return std::none_of(terms.begin(), terms.end(), [&](const Term& term) { return term.data == out; });
}

SumForm form_of(DType dtype, std::span<const Term> terms) {
  return sum_form(dtype, terms.size(), [&](std::size_t t) { return terms[t].weight; });
}

}  // namespace

SumPlan::SumPlan(DType dtype, std::span<const Term> given) : form(form_of(dtype, given)), terms(given) {
  if (form != SumForm::average || given[0].weight != 0) return;
  reordered_.assign(given.begin(), given.end());
  const auto first =
      std::find_if(reordered_.begin(), reordered_.end(), [](const Term& term) { return term.weight != 0; });
  std::rotate(reordered_.begin(), first, first + 1);
  terms = reordered_;
}

void combine(DType dtype, void* out, std::span<const Term> terms, std::size_t count, Store store) {
  if (!is_floating(dtype))
    throw InvalidArgument(
        "combine: weights need a floating dtype (float64, float32, float16, bfloat16), not " + name(dtype));
  check_on_host(terms);
  const bool streaming = store == Store::automatic ? worth_streaming(out, terms, count * size_of(dtype))
                                                   : store == Store::streaming;
  static constexpr decltype(&HWY_STATIC_DISPATCH(combine_here)) kTable[] = STARLING_TARGETS_OF(combine_here);
  const SumPlan plan(dtype, terms);
  choose(kTable)(dtype, out, plan.terms, plan.form, count, streaming);
}

}  // namespace starling::kernel
#endif
