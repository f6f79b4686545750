#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "starling/base/buffer.h"
#include "starling/base/error.h"
#include "starling/kernel/int8_runs.h"
#include "starling/kernel/term.h"

namespace starling::kernel {

/// The blocks of this rank and its neighbors as messages of fewer bits: of float16 or bfloat16, or the int8
/// messages of whole blocks. This rank's own message is x in that form. Empty without `own`.
struct PassMessages {
  DType dtype = DType::float32;
  const void* own = nullptr;
  std::span<const Term> others;

  explicit operator bool() const { return own != nullptr; }
};

/// One run of parameters in a local optimizer's pass: y = the sum of `from`, x <- y + U(y, gradient_scale *
/// gradient), written to `x` and, where given, to `copy` (such as the memory that neighbors read) and
/// `rounded` (such as the parameters whose master weights x are). `x` may be one of the summands. Any
/// floating type, which is x's; its state, gradient and count are x's, too. 16-bit types are computed in
/// float32, y included, and what is written is rounded once, to nearest even. Only the copies may be of
/// float16 or bfloat16 where x is of float32, and `copy` the whole block's int8 message.
struct UpdatePass {
  std::span<const Term> from;
  ConstBuffer gradient;
  double gradient_scale = 1;
  Buffer x;
  Buffer copy = {};
  /// If given, set to true when an element of the result is infinite or not a number.
  bool* nonfinite = nullptr;
  Buffer rounded = {};
  /// If given, y = from + the sum of weight * (theirs - own), with `from` this rank's x alone: what
  /// combine_around() computes.
  PassMessages messages = {};
  /// The part of the block that is updated, if `messages` or `copy` are int8.
  Int8Part part = {};

  bool sends_int8() const { return copy.address() != nullptr && copy.dtype == DType::int8; }
  bool has_int8() const { return sends_int8() || (messages && messages.dtype == DType::int8); }
};

/// Throws InvalidArgument for a pass without terms, and for other types than those.
inline void check_pass(const UpdatePass& pass, const char* operation) {
  const DType type = pass.x.dtype;
  const auto refuse = [&](const std::string& why) { throw InvalidArgument(operation + (": " + why)); };
  if (pass.from.empty()) refuse("an update needs something to start from");
  if (!is_floating(type)) refuse("parameters are float32, float64, float16 or bfloat16, not " + name(type));
  if (pass.gradient.dtype != type)
    refuse("the gradient of " + name(type) + " cannot be " + name(pass.gradient.dtype));
  if (pass.messages || pass.has_int8()) {
    if (type != DType::float32) refuse("messages of fewer bits are for float32, not " + name(type));
    if (pass.from.size() != 1 || pass.from[0].weight != 1)
      refuse("an update with messages of fewer bits starts from x alone");
    if (pass.has_int8() && !(begins_int8_run(pass.part.ends, pass.part.begin) &&
                             begins_int8_run(pass.part.ends, pass.part.begin + pass.x.count)))
      refuse("a part of a block with int8 messages consists of whole runs");
  }
  const auto check_copy = [&](const Buffer& copy) {
    if (copy.address() == nullptr || copy.dtype == type) return;
    if (type != DType::float32 || (copy.dtype != DType::float16 && copy.dtype != DType::bfloat16))
      refuse("a copy of " + name(type) + " cannot be " + name(copy.dtype) +
             "; it is of the same type, or float16 or bfloat16 of float32");
  };
  if (!pass.sends_int8()) check_copy(pass.copy);
  check_copy(pass.rounded);
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
