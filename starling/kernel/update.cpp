#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/update.cpp"
#include "starling/kernel/update.h"

#include <cmath>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "starling/kernel/average.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/element_rules.h"
#include "starling/kernel/int8_messages.h"
#include "starling/kernel/sums-inl.h"

#ifndef STARLING_KERNEL_UPDATE_HOST_PASS
#define STARLING_KERNEL_UPDATE_HOST_PASS
namespace starling::kernel {

// An UpdatePass whose buffers have been found to be in host memory, with its terms in the order of computing.
struct HostPass {
  struct Copy {
    void* data;  // or null
    DType dtype;
  };
  DType dtype;
  std::span<const Term> from;
  SumForm form;
  const void* gradient;
  double gradient_scale;
  void* x;
  Copy copy;
  Copy rounded;
  std::size_t count;
  bool* nonfinite;
};

}  // namespace starling::kernel
#endif

HWY_BEFORE_NAMESPACE();
namespace starling::kernel {
namespace HWY_NAMESPACE {

// a * b + c, each operation rounded on its own.
template <class V>
HWY_INLINE V times_plus(V a, V b, V c) {
  return hn::Add(hn::Mul(a, b), c);
}

// A 16-bit type is rounded to as convert() does.
template <typename E, class D>
HWY_INLINE void store_copy(D d, hn::Vec<D> v, const HostPass::Copy& copy, std::size_t i) {
  if (copy.data == nullptr) return;
  if (copy.dtype == dtype_of<E>) {
    store(d, v, static_cast<E*>(copy.data) + i);
  } else if constexpr (std::is_same_v<E, float>) {
    if (copy.dtype == DType::float16)
      store(d, v, static_cast<Half*>(copy.data) + i);
    else
      store(d, v, static_cast<BFloat16*>(copy.data) + i);
  }
}

// The loop that all updates share: what to do with (y, g) is the rule's.
template <typename E, typename Sum, typename Rule>
void pass_through(const HostPass& pass, const Sum& sum, const Rule& rule) {
  using T = Element<E>;
  const auto* gradient = static_cast<const E*>(pass.gradient);
  const auto scale = static_cast<T>(pass.gradient_scale);
  auto* x = static_cast<E*>(pass.x);
  const auto one_vector = [&](auto d, std::size_t i, auto& odd) HWY_ATTR {
    const auto y = sum(d, i, Whole());
    auto next = rule(d, i, y, hn::Mul(hn::Set(d, scale), load(d, gradient + i)));
    store(d, next, x + i);
    store_copy<E>(d, next, pass.copy, i);
    store_copy<E>(d, next, pass.rounded, i);
    // What a 16-bit type has no room for becomes infinite when it is rounded.
    if constexpr (!std::is_same_v<E, T>) next = load(d, x + i);
    // next - next is +0 for every finite number and a NaN otherwise.
    odd = hn::Or(odd, hn::Sub(next, next));
  };
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  const std::size_t lanes = hn::Lanes(d);
  auto odd = hn::Zero(d);
  auto odd_rest = hn::Zero(one);
  std::size_t i = 0;
  for (; i + lanes <= pass.count; i += lanes) one_vector(d, i, odd);
  for (; i < pass.count; ++i) one_vector(one, i, odd_rest);
  const bool finite = hn::AllTrue(d, hn::Eq(odd, hn::Zero(d))) && hn::GetLane(odd_rest) == T(0);
  if (!finite && pass.nonfinite != nullptr) *pass.nonfinite = true;
}

template <typename E, typename Rule>
void pass_with(const HostPass& pass, const Rule& rule) {
  using enum SumForm;
  const std::size_t terms = pass.from.size();
  if (terms == 1) return pass_through<E>(pass, ShortSum<E, 1>(pass.from), rule);
  if (pass.form == average) {
    if (terms == 2) return pass_through<E>(pass, ShortSum<E, 2, average>(pass.from), rule);
    if (terms == 3) return pass_through<E>(pass, ShortSum<E, 3, average>(pass.from), rule);
    if (terms == 4) return pass_through<E>(pass, ShortSum<E, 4, average>(pass.from), rule);
  }
  if constexpr (std::is_same_v<E, Element<E>>)
    if (pass.form == mean && terms == 3) return pass_through<E>(pass, ShortSum<E, 3, mean>(pass.from), rule);
  pass_through<E>(pass, LongSum<E>(pass.from, pass.form), rule);
}

template <typename E, typename T = Element<E>>
struct SgdStep {
  T lr, momentum, kept, weight_decay;
  bool nesterov, first;
  E* m;

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, std::size_t i, V y, V g) const {
    if (weight_decay != 0) g = times_plus(hn::Set(d, weight_decay), y, g);
    if (m != nullptr) {
      V now = g;
      if (!first) now = times_plus(hn::Set(d, momentum), load(d, m + i), hn::Mul(hn::Set(d, kept), g));
      store(d, now, m + i);
      g = nesterov ? times_plus(hn::Set(d, momentum), now, g) : now;
    }
    return hn::Sub(y, hn::Mul(hn::Set(d, lr), g));
  }
};

template <typename T>
struct AdamVectors : rules::AdamNumbers<T> {
  using Numbers = rules::AdamNumbers<T>;
  using Numbers::Numbers, Numbers::beta1, Numbers::rest1, Numbers::beta2, Numbers::rest2, Numbers::eps,
      Numbers::weight_decay, Numbers::shrink, Numbers::step_size, Numbers::root, Numbers::decoupled;

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE void decay(D d, V& y, V& g) const {
    if (weight_decay == 0) return;
    if (decoupled)
      y = hn::Mul(hn::Set(d, shrink), y);
    else
      g = times_plus(hn::Set(d, weight_decay), y, g);
  }
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V first_moment(D d, V before, V g) const {
    return times_plus(hn::Set(d, beta1), before, hn::Mul(hn::Set(d, rest1), g));
  }
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V second_moment(D d, V before, V g) const {
    return times_plus(hn::Set(d, beta2), before, hn::Mul(hn::Mul(hn::Set(d, rest2), g), g));
  }
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V moved(D d, V y, V m, V v) const {
    const V denominator = hn::Add(hn::Div(hn::Sqrt(v), hn::Set(d, root)), hn::Set(d, eps));
    return hn::Sub(y, hn::Mul(hn::Set(d, step_size), hn::Div(m, denominator)));
  }
};

template <typename E>
struct AdamStep {
  AdamVectors<Element<E>> numbers;
  E* m;
  E* v;

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, std::size_t i, V y, V g) const {
    numbers.decay(d, y, g);
    const V first = numbers.first_moment(d, load(d, m + i), g);
    const V second = numbers.second_moment(d, load(d, v + i), g);
    store(d, first, m + i);
    store(d, second, v + i);
    return numbers.moved(d, y, first, second);
  }
};

template <typename E>
struct AccumAdamStep {
  AdamVectors<Element<E>> numbers;
  Element<E> share;  // 1 / s
  bool fold;
  E* m;
  E* v;
  E* sum;

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, std::size_t i, V y, V g) const {
    numbers.decay(d, y, g);
    const V kept_first = load(d, m + i);
    const V kept_second = load(d, v + i);
    const V gathered = times_plus(hn::Set(d, share), g, load(d, sum + i));
    if (fold) {
      store(d, numbers.first_moment(d, kept_first, gathered), m + i);
      store(d, numbers.second_moment(d, kept_second, gathered), v + i);
    }
    store(d, fold ? hn::Zero(d) : gathered, sum + i);
    return numbers.moved(d, y, numbers.first_moment(d, kept_first, g),
                         numbers.second_moment(d, kept_second, g));
  }
};

template <typename Body>
void as_parameters(const HostPass& pass, const Body& body) {
  dispatch(pass.dtype, [&]<typename E>(std::type_identity<E>) {
    if constexpr (is_floating_element<E>) body(E{});
  });
}

void sgd_here(const HostPass& pass, const SgdRule& rule, void* m, bool first) {
  as_parameters(pass, [&]<typename E>(E) {
    using T = Element<E>;
    pass_with<E>(pass, SgdStep<E>{static_cast<T>(rule.lr), static_cast<T>(rule.momentum),
                                  static_cast<T>(1 - rule.dampening), static_cast<T>(rule.weight_decay),
                                  rule.nesterov, first, rule.momentum != 0 ? static_cast<E*>(m) : nullptr});
  });
}

void adam_here(const HostPass& pass, const AdamRule& rule, void* m, void* v, long t) {
  as_parameters(pass, [&]<typename E>(E) {
    pass_with<E>(pass, AdamStep<E>{{rule, t}, static_cast<E*>(m), static_cast<E*>(v)});
  });
}

void accum_adam_here(const HostPass& pass, const AdamRule& rule, void* m, void* v, void* sum, long t, long s,
                     bool fold) {
  as_parameters(pass, [&]<typename E>(E) {
    pass_with<E>(pass, AccumAdamStep<E>{{rule, t},
                                        static_cast<Element<E>>(1 / static_cast<double>(s)),
                                        fold,
                                        static_cast<E*>(m),
                                        static_cast<E*>(v),
                                        static_cast<E*>(sum)});
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <vector>

namespace starling::kernel {
namespace {

// Calls kernel(pass, begin) with a pass, or with a piece of one that begins at element `begin`.
template <typename Kernel>
void run_pass(const UpdatePass& pass, const Kernel& kernel, std::size_t begin = 0) {
  const SumPlan plan(pass.x.dtype, pass.from);
  kernel(HostPass{pass.x.dtype,
                  plan.terms,
                  plan.form,
                  pass.gradient.host_data(),
                  pass.gradient_scale,
                  pass.x.host_data(),
                  {pass.copy.host_data(), pass.copy.dtype},
                  {pass.rounded.host_data(), pass.rounded.dtype},
                  pass.x.count,
                  pass.nonfinite},
         begin);
}

// The part of a pass whose messages are not int8, or without them.
UpdatePass piece_of(const UpdatePass& pass, std::size_t begin, std::size_t count, Term& from) {
  const auto moved = [&](auto buffer) {
    return buffer.address() == nullptr ? buffer : buffer.part(begin, count);
  };
  from = {static_cast<const float*>(pass.from[0].data) + begin, 1};
  UpdatePass piece = pass;
  piece.from = {&from, 1};
  piece.gradient = moved(pass.gradient);
  piece.x = moved(pass.x);
  piece.copy = pass.sends_int8() ? Buffer() : moved(pass.copy);
  piece.rounded = moved(pass.rounded);
  piece.messages = {};
  return piece;
}

// An average of messages is computed in x, a piece at a time, which is then still in the cache.
template <typename Kernel>
void run_in_pieces(const UpdatePass& pass, const Kernel& kernel) {
  constexpr std::size_t kPiece = 4096;
  const std::size_t count = pass.x.count;
  Term from;
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const UpdatePass piece = piece_of(pass, begin, std::min(kPiece, count - begin), from);
    const std::size_t bytes = begin * size_of(pass.messages.dtype);
    const auto at = [&](const void* message) { return static_cast<const std::byte*>(message) + bytes; };
    std::vector<Term> others(pass.messages.others.begin(), pass.messages.others.end());
    for (Term& term : others) term.data = at(term.data);
    combine_around(pass.messages.dtype, piece.x.host_data(), from.data, at(pass.messages.own), others,
                   piece.x.count);
    from.data = piece.x.host_data();
    run_pass(piece, kernel, begin);
  }
}

template <typename Kernel>
void run_in_int8_runs(const UpdatePass& pass, const Kernel& kernel) {
  const Int8Runs runs(pass.part.ends);
  std::vector<Int8Term> others(pass.messages.others.size());
  Term from;
  for_int8_runs(pass.part, pass.x.count, [&](std::size_t run, std::size_t begin, std::size_t length) {
    const std::size_t element = pass.part.begin + begin;
    const UpdatePass piece = piece_of(pass, begin, length, from);
    if (pass.messages) {
      for (std::size_t t = 0; t < others.size(); ++t) {
        const Term& term = pass.messages.others[t];
        others[t] = {runs.read(term.data, run, element), term.weight};
      }
      combine_around_int8(piece.x.host<float>(), static_cast<const float*>(from.data),
                          runs.read(pass.messages.own, run, element), others, length);
      from.data = piece.x.host_data();
    }
    run_pass(piece, kernel, begin);
    if (pass.sends_int8()) runs.write(pass.copy.host_data(), run, element, piece.x.host<float>(), length);
  });
}

template <typename Kernel>
void on_host(const UpdatePass& pass, const char* operation, const Kernel& kernel) {
  check_pass(pass, operation);
  check_on_host(pass.from);
  check_on_host(pass.messages.others);
  if (pass.has_int8()) return run_in_int8_runs(pass, kernel);
  pass.messages ? run_in_pieces(pass, kernel) : run_pass(pass, kernel);
}

// An optimizer's vector from element `begin` on, or null.
void* from_element(const Buffer& vector, std::size_t begin) {
  return vector.address() == nullptr ? nullptr : vector.part(begin, 0).host_data();
}

}  // namespace

void sgd_update(const UpdatePass& pass, const SgdRule& rule, Buffer m, bool first) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(sgd_here)) kTable[] = STARLING_TARGETS_OF(sgd_here);
  on_host(pass, "sgd", [&](const HostPass& host, std::size_t begin) {
    choose(kTable)(host, rule, from_element(m, begin), first);
  });
}

void adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, long t) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(adam_here)) kTable[] = STARLING_TARGETS_OF(adam_here);
  on_host(pass, "adam", [&](const HostPass& host, std::size_t begin) {
    choose(kTable)(host, rule, from_element(m, begin), from_element(v, begin), t);
  });
}

void accum_adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, Buffer sum, long t,
                       long s, bool fold) {
  static constexpr decltype(&HWY_STATIC_DISPATCH(accum_adam_here)) kTable[] =
      STARLING_TARGETS_OF(accum_adam_here);
  on_host(pass, "accum-adam", [&](const HostPass& host, std::size_t begin) {
    choose(kTable)(host, rule, from_element(m, begin), from_element(v, begin), from_element(sum, begin), t, s,
                   fold);
  });
}

}  // namespace starling::kernel
#endif
