#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "starling/kernel/combine.h"

// How combine() and the fused updates of kernel/update.h compute averages.

namespace starling::kernel {

/// The forms of a weighted sum. An average has at least two weights, none negative, that sum to one up to
/// rounding; x0 is its first term with a weight above zero.
///
/// Averaging equal values returns them bit for bit whatever the weights, and repeated averages do not move
/// the mean of the ranks. Plain products would shift it a little each time, because rounded weights sum to
/// one only approximately.
enum class SumForm {
  products,  // ((w0*x0) + w1*x1) + ...
  average,   // x0 - ((w1*(x0 - x1)) + w2*(x0 - x2) + ...)
  mean,      // x0 - (((x0 - x1) + (x0 - x2)) + ...) / n: equal weights, n no power of two, 32 bits or more
};

/// The form of a sum, and its terms in the order in which kernels take them, x0 first.
struct SumPlan {
  SumPlan(DType dtype, std::span<const Term> given);
  SumPlan(const SumPlan&) = delete;
  SumPlan& operator=(const SumPlan&) = delete;

  SumForm form;
  std::span<const Term> terms;

 private:
  std::vector<Term> reordered_;  // only if the first weight is zero
};

/// data[i] /= number, for sums that become averages; multiplying by the rounded 1 / number would add the same
/// error every time. float16 and bfloat16 divide in float32. Throws InvalidArgument for integers.
void divide(DType dtype, void* data, double number, std::size_t count);
inline void divide(Buffer x, double number) {
  divide(x.dtype, x.host_data(), number, x.count);
}

}  // namespace starling::kernel
