#pragma once

#include <cstddef>
#include <span>

#include "starling/base/buffer.h"
#include "starling/base/error.h"
#include "starling/kernel/term.h"

namespace starling::kernel {

/// One run of parameters in a local optimizer's pass: y = combine() of `from`, bit for bit, then x <- y +
/// U(y, gradient_scale * gradient), written to `x` and, if given, to `copy` (such as the memory that
/// neighbors read). `x` may be one of the summands. Elements are float32 or float64; type and count are those
/// of x. Only `copy` may be float16 or bfloat16 if x is float32: it is rounded to nearest even.
struct UpdatePass {
  std::span<const Term> from;
  ConstBuffer gradient;
  double gradient_scale = 1;
  Buffer x;
  Buffer copy = {};
  /// If given, set to true when an element of the result is infinite or not a number.
  bool* nonfinite = nullptr;
};

/// Throws InvalidArgument if `copy` has an unsupported type.
inline void check_copy(const UpdatePass& pass) {
  const DType type = pass.copy.dtype;
  if (pass.copy.address() == nullptr || type == pass.x.dtype) return;
  if (pass.x.dtype != DType::float32 || (type != DType::float16 && type != DType::bfloat16))
    throw InvalidArgument("an update's copy of " + name(pass.x.dtype) + " cannot be " + name(type) +
                          "; it is of the same type, or float16 or bfloat16 of float32");
}

/// torch's SGD: d = g + weight_decay y; m <- momentum m + (1 - dampening) d; x = y - lr (d, m, or d +
/// momentum m).
struct SgdRule {
  double lr = 0.01;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
/// Without momentum `m` is not used and may be empty. `first`: m <- d, as in torch's first step.
void sgd_update(const UpdatePass& pass, const SgdRule& rule, Buffer m, bool first);

/// torch's Adam, or AdamW where `decoupled`. `t` counts from 1.
struct AdamRule {
  double lr = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;
};
void adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, long t);

/// Adam whose moments take in the mean gradient of s steps: this step uses m and v as updated by the gradient
/// but does not keep them; `sum` gathers g / s. With `fold`, the sum goes into the moments and becomes zero.
/// `t` counts folds, from 1.
void accum_adam_update(const UpdatePass& pass, const AdamRule& rule, Buffer m, Buffer v, Buffer sum, long t,
                       long s, bool fold);

/// Moments of a gradient, computed in float64 for any element type: m <- beta1 m + (1 - beta1) g and v <-
/// beta2 v + (1 - beta2) g^2, with g = gradient_scale * gradient + weight_decay * x.
struct MomentRule {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double gradient_scale = 1;
  double weight_decay = 0;
};

/// A step along the moments, computed in float64: x <- x - lr (weight_decay x + m' / (sqrt(v') + eps)), with
/// m' = m / m_correction and v' = v / v_correction.
struct MomentStepRule {
  double lr = 0.001;
  double weight_decay = 0;
  double eps = 1e-8;
  double m_correction = 1;
  double v_correction = 1;
};

/// The sum of squares in float64, in the order of kernel/square_sum.h: the same bits on every instruction set
/// and device.
double sum_of_squares(DType dtype, const void* data, std::size_t count);
inline double sum_of_squares(ConstBuffer x) {
  return sum_of_squares(x.dtype, x.host_data(), x.count);
}

}  // namespace starling::kernel
