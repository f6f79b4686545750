#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "starling/kernel/update.h"

// The operations of all kernels on one element, as plain functions. The SIMD kernels reproduce them bit for
// bit (tests compare them), and device code calls them. Each operation is rounded on its own, so this code is
// compiled without contraction to fused multiply-adds.

#if defined(__CUDACC__)
#define STARLING_ELEMENT_RULE __host__ __device__ inline
#else
#define STARLING_ELEMENT_RULE inline
#endif

namespace starling::kernel {
namespace rules {

// The forms of a weighted sum; see kernel/average.h. `n` is at least 1.

template <typename T>
STARLING_ELEMENT_RULE T products(const T* x, const T* weight, int n) {
  T sum = weight[0] * x[0];
  for (int t = 1; t < n; ++t) sum = sum + weight[t] * x[t];
  return sum;
}

template <typename T>
STARLING_ELEMENT_RULE T average(const T* x, const T* weight, int n) {
  T sum = weight[1] * (x[0] - x[1]);
  for (int t = 2; t < n; ++t) sum = sum + weight[t] * (x[0] - x[t]);
  return x[0] - sum;
}

template <typename T>
STARLING_ELEMENT_RULE T mean(const T* x, int n) {
  T sum = x[0] - x[1];
  for (int t = 2; t < n; ++t) sum = sum + (x[0] - x[t]);
  return x[0] - sum / static_cast<T>(n);
}

/// The factor of a vector whose norm, the root of `squares`, is limited. A norm that is not a number limits
/// nothing.
STARLING_ELEMENT_RULE double clipped(double factor, double squares, double limit) {
  const double share = limit / (std::sqrt(squares) + 1e-6);
  return share < 1 ? factor * share : factor;
}

/// IEEE 754-2019's minimum and maximum for floats (see kernel/reduce.h), the usual ones for integers.
template <typename T>
STARLING_ELEMENT_RULE bool is_negative(T x) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  return std::bit_cast<Bits>(x) < 0;
}
template <typename T>
STARLING_ELEMENT_RULE T minimum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return a;
    if (a == b) return is_negative(a) ? a : b;
  }
  return a < b ? a : b;
}
template <typename T>
STARLING_ELEMENT_RULE T maximum(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return a;
    if (a == b) return is_negative(a) ? b : a;
  }
  return a > b ? a : b;
}

/// The settings of SGD in the type that it is computed in.
template <typename T>
struct SgdNumbers {
  SgdNumbers(const SgdRule& rule, bool its_first)
      : lr(static_cast<T>(rule.lr)),
        momentum(static_cast<T>(rule.momentum)),
        kept(static_cast<T>(1 - rule.dampening)),
        weight_decay(static_cast<T>(rule.weight_decay)),
        has_momentum(rule.momentum != 0),
        nesterov(rule.nesterov),
        first(its_first) {}

  T lr, momentum, kept, weight_decay;
  bool has_momentum, nesterov, first;
};

/// The next x of SGD; m changes if there is momentum.
template <typename T>
STARLING_ELEMENT_RULE T sgd(const SgdNumbers<T>& numbers, T y, T g, T& m) {
  if (numbers.weight_decay != 0) g = numbers.weight_decay * y + g;
  if (numbers.has_momentum) {
    m = numbers.first ? g : numbers.momentum * m + numbers.kept * g;
    g = numbers.nesterov ? numbers.momentum * m + g : m;
  }
  return y - numbers.lr * g;
}

/// The settings of Adam in step `t`, in the type that it is computed in.
template <typename T>
struct AdamNumbers {
  AdamNumbers(const AdamRule& rule, long t)
      : beta1(static_cast<T>(rule.beta1)),
        rest1(static_cast<T>(1 - rule.beta1)),
        beta2(static_cast<T>(rule.beta2)),
        rest2(static_cast<T>(1 - rule.beta2)),
        eps(static_cast<T>(rule.eps)),
        weight_decay(static_cast<T>(rule.weight_decay)),
        shrink(static_cast<T>(1 - rule.lr * rule.weight_decay)),
        step_size(static_cast<T>(rule.lr / (1 - std::pow(rule.beta1, static_cast<double>(t))))),
        root(static_cast<T>(std::sqrt(1 - std::pow(rule.beta2, static_cast<double>(t))))),
        decoupled(rule.decoupled) {}

  T beta1, rest1, beta2, rest2, eps, weight_decay, shrink, step_size, root;
  bool decoupled;
};

template <typename T>
STARLING_ELEMENT_RULE void decay(const AdamNumbers<T>& numbers, T& y, T& g) {
  if (numbers.weight_decay == 0) return;
  if (numbers.decoupled)
    y = numbers.shrink * y;
  else
    g = numbers.weight_decay * y + g;
}
template <typename T>
STARLING_ELEMENT_RULE T first_moment(const AdamNumbers<T>& numbers, T before, T g) {
  return numbers.beta1 * before + numbers.rest1 * g;
}
template <typename T>
STARLING_ELEMENT_RULE T second_moment(const AdamNumbers<T>& numbers, T before, T g) {
  return numbers.beta2 * before + (numbers.rest2 * g) * g;
}
template <typename T>
STARLING_ELEMENT_RULE T adam_step(const AdamNumbers<T>& numbers, T y, T m, T v) {
  return y - numbers.step_size * (m / (std::sqrt(v) / numbers.root + numbers.eps));
}

/// The next x of Adam or AdamW; m and v change.
template <typename T>
STARLING_ELEMENT_RULE T adam(const AdamNumbers<T>& numbers, T y, T g, T& m, T& v) {
  decay(numbers, y, g);
  m = first_moment(numbers, m, g);
  v = second_moment(numbers, v, g);
  return adam_step(numbers, y, m, v);
}

/// The next x of AccumAdam; `share` is 1 / s. The moments change only in a fold.
template <typename T>
STARLING_ELEMENT_RULE T accum_adam(const AdamNumbers<T>& numbers, T share, bool fold, T y, T g, T& m, T& v,
                                   T& sum) {
  decay(numbers, y, g);
  const T x = adam_step(numbers, y, first_moment(numbers, m, g), second_moment(numbers, v, g));
  sum = share * g + sum;
  if (fold) {
    m = first_moment(numbers, m, sum);
    v = second_moment(numbers, v, sum);
    sum = T(0);
  }
  return x;
}

template <typename T>
STARLING_ELEMENT_RULE double moment_gradient(const MomentRule& rule, T x, T gradient) {
  return rule.gradient_scale * static_cast<double>(gradient) + rule.weight_decay * static_cast<double>(x);
}
template <typename T>
STARLING_ELEMENT_RULE T first_moment(const MomentRule& rule, T x, T gradient, T m) {
  return static_cast<T>(rule.beta1 * static_cast<double>(m) +
                        (1 - rule.beta1) * moment_gradient(rule, x, gradient));
}
template <typename T>
STARLING_ELEMENT_RULE T second_moment(const MomentRule& rule, T x, T gradient, T v) {
  const double g = moment_gradient(rule, x, gradient);
  return static_cast<T>(rule.beta2 * static_cast<double>(v) + (1 - rule.beta2) * g * g);
}
template <typename T>
STARLING_ELEMENT_RULE T moment_step(const MomentStepRule& rule, T x, T m, T v) {
  const double mean = static_cast<double>(m) / rule.m_correction;
  const double square = static_cast<double>(v) / rule.v_correction;
  const auto before = static_cast<double>(x);
  return static_cast<T>(before -
                        rule.lr * (rule.weight_decay * before + mean / (std::sqrt(square) + rule.eps)));
}

}  // namespace rules
}  // namespace starling::kernel
