#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/combine_around.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/combine.h"
#include "starling/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

// kTerms = 0: any number of terms.
template <typename Message, std::size_t kTerms>
void around(Element<Message>* out, const Element<Message>* x, const Message* own, std::span<const Term> given,
            std::size_t count) {
  using L = Element<Message>;
  Term kept[kTerms + 1];
  for (std::size_t t = 0; t < kTerms; ++t) kept[t] = given[t];
  const Term* terms = kTerms > 0 ? kept : given.data();
  const std::size_t number = kTerms > 0 ? kTerms : given.size();
  map<L>(out, count, [&](auto d, std::size_t i, auto loader) HWY_ATTR {
    const auto center = loader(d, own + i);
    const auto pull = [&](const Term& term) HWY_ATTR {
      const auto difference = hn::Sub(center, loader(d, static_cast<const Message*>(term.data) + i));
      return hn::Mul(hn::Set(d, static_cast<L>(term.weight)), difference);
    };
    auto sum = pull(terms[0]);
    for (std::size_t t = 1; t < number; ++t) sum = hn::Add(sum, pull(terms[t]));
    // Subtracted, so that x without differences keeps even the sign of zero.
    return hn::Sub(x == nullptr ? hn::Zero(d) : loader(d, x + i), sum);
  });
}

template <typename Message>
void around_as(void* to, const void* from, const void* own, std::span<const Term> terms, std::size_t count) {
  const auto* center = static_cast<const Message*>(own);
  const auto* x = static_cast<const Element<Message>*>(from);
  auto* out = static_cast<Element<Message>*>(to);
  switch (terms.size()) {
    case 1:
      return around<Message, 1>(out, x, center, terms, count);
    case 2:
      return around<Message, 2>(out, x, center, terms, count);
    case 3:
      return around<Message, 3>(out, x, center, terms, count);
    default:
      return around<Message, 0>(out, x, center, terms, count);
  }
}

void around_here(DType message, void* out, const void* x, const void* own, std::span<const Term> terms,
                 std::size_t count) {
  if (message == DType::float16) return around_as<Half>(out, x, own, terms, count);
  if (message == DType::bfloat16) return around_as<BFloat16>(out, x, own, terms, count);
  if (message == DType::float64) return around_as<double>(out, x, own, terms, count);
  around_as<float>(out, x, own, terms, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

namespace starling::kernel {

void combine_around(DType message, void* out, const void* x, const void* own, std::span<const Term> terms,
                    std::size_t count) {
  if (!is_floating(message))
    throw InvalidArgument("combine_around: messages are float16, bfloat16, float32 or float64, not " +
                          name(message));
  check_on_host(terms);
  if (terms.empty()) {
    const std::size_t bytes = count * (message == DType::float64 ? sizeof(double) : sizeof(float));
    if (bytes == 0 || out == x) return;
    x == nullptr ? std::memset(out, 0, bytes) : std::memcpy(out, x, bytes);
    return;
  }
  static constexpr decltype(&HWY_STATIC_DISPATCH(around_here)) kTable[] = STARLING_TARGETS_OF(around_here);
  choose(kTable)(message, out, x, own, terms, count);
}

}  // namespace starling::kernel
#endif
