#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "starling/kernel/update.cpp"
#include "starling/kernel/update.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <vector>

#include "starling/kernel/average.h"
#include "starling/kernel/element_rules.h"
#include "starling/kernel/lanes-inl.h"

#ifndef STARLING_KERNEL_UPDATE_HOST_PASS
#define STARLING_KERNEL_UPDATE_HOST_PASS
namespace starling::kernel {

// An UpdatePass whose buffers were checked to be in host memory.
struct HostPass {
  std::span<const Term> from;
  const void* gradient;
  double gradient_scale;
  void* x;
  void* copy;
  DType copy_type;
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

// Rounds to 16-bit types like convert().
template <typename T, class D>
HWY_INLINE void store_copy(D d, hn::Vec<D> v, const HostPass& pass, std::size_t i) {
  if (pass.copy_type == dtype_of<T>) {
    hn::StoreU(v, d, static_cast<T*>(pass.copy) + i);
  } else if constexpr (std::is_same_v<T, float>) {
    if (pass.copy_type == DType::float16)
      store(d, v, static_cast<Half*>(pass.copy) + i);
    else
      store(d, v, static_cast<BFloat16*>(pass.copy) + i);
  }
}

// The loop that all updates share; the rule computes the next x from (y, g). Several terms are an average.
template <typename T, std::size_t kTerms, SumForm kForm, typename Rule>
void pass_through(const HostPass& pass, const Rule& rule) {
  std::array<const T*, kTerms> from{};
  std::array<T, kTerms> weight{};
  for (std::size_t t = 0; t < kTerms; ++t) {
    from[t] = static_cast<const T*>(pass.from[t].data);
    weight[t] = static_cast<T>(pass.from[t].weight);
  }
  const auto* gradient = static_cast<const T*>(pass.gradient);
  const auto scale = static_cast<T>(pass.gradient_scale);
  auto* x = static_cast<T*>(pass.x);
  // next - next is +0 for every finite number and a NaN otherwise.
  const auto one_vector = [&](auto d, std::size_t i, auto& odd) HWY_ATTR {
    auto y = hn::LoadU(d, from[0] + i);
    if constexpr (kTerms == 1) {
      // A single block with weight one is taken as it is.
      if (weight[0] != T(1)) y = hn::Mul(hn::Set(d, weight[0]), y);
    } else {
      const auto pull = [&](std::size_t t) HWY_ATTR {
        const auto difference = hn::Sub(y, hn::LoadU(d, from[t] + i));
        return kForm == SumForm::mean ? difference : hn::Mul(hn::Set(d, weight[t]), difference);
      };
      auto sum = pull(1);
      for (std::size_t t = 2; t < kTerms; ++t) sum = hn::Add(sum, pull(t));
      if constexpr (kForm == SumForm::mean) sum = hn::Div(sum, hn::Set(d, T(kTerms)));
      y = hn::Sub(y, sum);
    }
    const auto next = rule(d, i, y, hn::Mul(hn::Set(d, scale), hn::LoadU(d, gradient + i)));
    hn::StoreU(next, d, x + i);
    if (pass.copy != nullptr) store_copy<T>(d, next, pass, i);
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

template <typename T, typename Rule>
void pass_with(const HostPass& pass, const Rule& rule) {
  switch (pass.from.size()) {
    case 1:
      return pass_through<T, 1, SumForm::products>(pass, rule);
    case 2:
      return pass_through<T, 2, SumForm::average>(pass, rule);
    case 3:
      if (SumPlan(dtype_of<T>, pass.from).form == SumForm::mean)
        return pass_through<T, 3, SumForm::mean>(pass, rule);
      return pass_through<T, 3, SumForm::average>(pass, rule);
    default:
      return pass_through<T, 4, SumForm::average>(pass, rule);
  }
}

template <typename T>
struct SgdStep {
  T lr, momentum, kept, weight_decay;
  bool nesterov, first;
  T* m;

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, std::size_t i, V y, V g) const {
    if (weight_decay != 0) g = times_plus(hn::Set(d, weight_decay), y, g);
    if (m != nullptr) {
      const V before = hn::LoadU(d, m + i);
      const V now = first ? g : times_plus(hn::Set(d, momentum), before, hn::Mul(hn::Set(d, kept), g));
      hn::StoreU(now, d, m + i);
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

template <typename T>
struct AdamStep {
  AdamVectors<T> numbers;
  T* m;
  T* v;

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, std::size_t i, V y, V g) const {
    numbers.decay(d, y, g);
    const V first = numbers.first_moment(d, hn::LoadU(d, m + i), g);
    const V second = numbers.second_moment(d, hn::LoadU(d, v + i), g);
    hn::StoreU(first, d, m + i);
    hn::StoreU(second, d, v + i);
    return numbers.moved(d, y, first, second);
  }
};

template <typename T>
struct AccumAdamStep {
  AdamVectors<T> numbers;
  T share;  // 1 / s
  bool fold;
  T* m;
  T* v;
  T* sum;

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, std::size_t i, V y, V g) const {
    numbers.decay(d, y, g);
    const V kept_first = hn::LoadU(d, m + i);
    const V kept_second = hn::LoadU(d, v + i);
    const V gathered = times_plus(hn::Set(d, share), g, hn::LoadU(d, sum + i));
    if (fold) {
      hn::StoreU(numbers.first_moment(d, kept_first, gathered), d, m + i);
      hn::StoreU(numbers.second_moment(d, kept_second, gathered), d, v + i);
    }
    hn::StoreU(fold ? hn::Zero(d) : gathered, d, sum + i);
    return numbers.moved(d, y, numbers.first_moment(d, kept_first, g),
                         numbers.second_moment(d, kept_second, g));
  }
};

template <typename T>
void sgd_as(const HostPass& pass, const SgdRule& rule, void* m, bool first) {
  pass_with<T>(pass, SgdStep<T>{static_cast<T>(rule.lr), static_cast<T>(rule.momentum),
                                static_cast<T>(1 - rule.dampening), static_cast<T>(rule.weight_decay),
                                rule.nesterov, first, rule.momentum != 0 ? static_cast<T*>(m) : nullptr});
}
void sgd_here(bool wide, const HostPass& pass, const SgdRule& rule, void* m, bool first) {
  wide ? sgd_as<double>(pass, rule, m, first) : sgd_as<float>(pass, rule, m, first);
}

template <typename T>
void adam_as(const HostPass& pass, const AdamRule& rule, void* m, void* v, long t) {
  pass_with<T>(pass, AdamStep<T>{{rule, t}, static_cast<T*>(m), static_cast<T*>(v)});
}
void adam_here(bool wide, const HostPass& pass, const AdamRule& rule, void* m, void* v, long t) {
  wide ? adam_as<double>(pass, rule, m, v, t) : adam_as<float>(pass, rule, m, v, t);
}

template <typename T>
void accum_adam_as(const HostPass& pass, const AdamRule& rule, void* m, void* v, void* sum, long t, long s,
                   bool fold) {
  pass_with<T>(pass, AccumAdamStep<T>{{rule, t},
                                      static_cast<T>(1 / static_cast<double>(s)),
                                      fold,
                                      static_cast<T*>(m),
                                      static_cast<T*>(v),
                                      static_cast<T*>(sum)});
}
void accum_adam_here(bool wide, const HostPass& pass, const AdamRule& rule, void* m, void* v, void* sum,
                     long t, long s, bool fold) {
  wide ? accum_adam_as<double>(pass, rule, m, v, sum, t, s, fold)
       : accum_adam_as<float>(pass, rule, m, v, sum, t, s, fold);
}

}  // namespace HWY_NAMESPACE
}  // namespace starling::kernel
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling::kernel {
namespace {

bool wide(DType dtype, const char* kernel) {
  if (dtype != DType::float32 && dtype != DType::float64)
    throw InvalidArgument(std::string(kernel) + ": parameters are float32 or float64, not " + name(dtype));
  return dtype == DType::float64;
}

// Handles a single block, or an average of at most four, directly; another sum is first added up in `x`,
// piece by piece through the cache.
template <typename Kernel>
void in_few_terms(const UpdatePass& given, const Kernel& kernel) {
  if (given.from.empty()) throw InvalidArgument("an update needs something to start from");
  check_on_host(given.from);
  check_copy(given);
  constexpr std::size_t kMostTerms = 4;
  const DType dtype = given.x.dtype;
  const HostPass pass{given.from,
                      given.gradient.host_data(),
                      given.gradient_scale,
                      given.x.host_data(),
                      given.copy.host_data(),
                      given.copy.dtype,
                      given.x.count,
                      given.nonfinite};
  const SumPlan plan(dtype, pass.from);
  if (pass.from.size() == 1 || (plan.form != SumForm::products && pass.from.size() <= kMostTerms)) {
    HostPass ordered = pass;
    ordered.from = plan.terms;
    return kernel(ordered, std::size_t{0});
  }
  constexpr std::size_t kPieceElements = 4096;
  const std::size_t element = size_of(dtype);
  for (std::size_t begin = 0; begin < pass.count; begin += kPieceElements) {
    HostPass piece = pass;
    piece.count = std::min(kPieceElements, pass.count - begin);
    const auto at = [&](auto* pointer) { return pointer == nullptr ? nullptr : pointer + begin * element; };
    std::vector<Term> terms(pass.from.begin(), pass.from.end());
    for (Term& term : terms) term.data = at(static_cast<const std::byte*>(term.data));
    piece.gradient = at(static_cast<const std::byte*>(pass.gradient));
    piece.x = at(static_cast<std::byte*>(pass.x));
    if (pass.copy != nullptr) piece.copy = given.copy.part(begin, piece.count).host_data();
    combine(dtype, piece.x, terms, piece.count, Store::cached);
    const Term whole{piece.x, 1};
    piece.from = {&whole, 1};
    kernel(piece, begin * element);
  }
}

void* offset(Buffer state, std::size_t bytes) {
  return state.address() == nullptr ? nullptr : state.host_bytes() + bytes;
}

}  // namespace

void sgd_update(const UpdatePass& pass, const SgdRule& rule, Buffer m, bool first) {
  const bool is_wide = wide(pass.x.dtype, "sgd");
  static constexpr decltype(&HWY_STATIC_DISPATCH(sgd_here)) kTable[] = STARLING_TARGETS_OF(sgd_here);
  in_few_terms(pass, [&](const HostPass& piece, std::size_t at) {
    choose(kTable)(is_wide, piece, rule, offset(m, at), first);
  });
}

void adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, long t) {
  const bool is_wide = wide(pass.x.dtype, "adam");
  static constexpr decltype(&HWY_STATIC_DISPATCH(adam_here)) kTable[] = STARLING_TARGETS_OF(adam_here);
  in_few_terms(pass, [&](const HostPass& piece, std::size_t at) {
    choose(kTable)(is_wide, piece, rule, offset(m, at), offset(v, at), t);
  });
}

void accum_adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, Buffer sum, long t,
                       long s, bool fold) {
  const bool is_wide = wide(pass.x.dtype, "accum-adam");
  static constexpr decltype(&HWY_STATIC_DISPATCH(accum_adam_here)) kTable[] =
      STARLING_TARGETS_OF(accum_adam_here);
  in_few_terms(pass, [&](const HostPass& piece, std::size_t at) {
    choose(kTable)(is_wide, piece, rule, offset(m, at), offset(v, at), offset(sum, at), t, s, fold);
  });
}

}  // namespace starling::kernel
#endif
