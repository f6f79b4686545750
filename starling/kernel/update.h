#pragma once

#include <cstddef>
#include <span>

#include "starling/base/dtype.h"
#include "starling/kernel/combine.h"

namespace starling {

/// One run of parameters on its way through a local optimizer, in one pass: y = combine() of `from`, bit for
/// bit, then x <- y + U(y, gradient_scale * gradient), written to `x` and, where given, to `copy` (such as
/// the memory that neighbours read). `x` may be one of the summands. float32 or float64.
struct Stride {
  std::span<const Term> from;
  const void* gradient = nullptr;
  double gradient_scale = 1;
  void* x = nullptr;
  void* copy = nullptr;
  std::size_t count = 0;
  /// Where given, set to true when an element of the result is infinite or not a number.
  bool* nonfinite = nullptr;
};

/// torch's SGD: d = g + weight_decay y; m <- momentum m + (1 - dampening) d; x = y - lr (d, m, or d +
/// momentum m).
struct SgdRule {
  double lr = 0.01;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
/// `m` is not touched without momentum. `first`: m <- d, as torch begins.
void sgd_update(DType dtype, const Stride& stride, const SgdRule& rule, void* m, bool first);

/// torch's Adam, or AdamW where `decoupled`. `t` counts from 1.
struct AdamRule {
  double lr = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;
};
void adam_update(DType dtype, const Stride& stride, const AdamRule& rule, void* m, void* v, long t);

/// Adam whose moments take up the mean gradient of s steps only: m and v of this step are made from the kept
/// ones and not kept; `sum` gathers g / s, and when `fold`, it goes into the moments and becomes zero. `t`
/// counts folds, from 1.
void accum_adam_update(DType dtype, const Stride& stride, const AdamRule& rule, void* m, void* v, void* sum,
                       long t, long s, bool fold);

/// The sum of squares, in float64; the same whatever the instruction set.
double sum_of_squares(DType dtype, const void* data, std::size_t count);

}  // namespace starling
