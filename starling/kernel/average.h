#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "starling/kernel/combine.h"

// How averages are computed, by combine() and by the fused updates of kernel/update.h.

namespace starling::kernel {

/// The forms of a weighted sum. An average has two or more weights, none negative, whose sum is one up to
/// rounding; x0 is its first term with a weight above zero.
///
/// Equal values come back from an average bit for bit whatever the weights, and repeated averages do not move
/// the mean of the ranks: rounded weights sum to one only approximately, and products with them would shift
/// the mean a little each time.
enum class SumForm {
  products,  // ((w0*x0) + w1*x1) + ...
  average,   // x0 - ((w1*(x0 - x1)) + w2*(x0 - x2) + ...)
  mean,      // x0 - (((x0 - x1) + (x0 - x2)) + ...) / n: equal weights, n no power of two, 32 bits or more
};

/// The form of a sum, and its terms in the order in which the kernels take them: x0 first.
struct SumPlan {
  SumPlan(DType dtype, std::span<const Term> given);
  SumPlan(const SumPlan&) = delete;
  SumPlan& operator=(const SumPlan&) = delete;

  SumForm form;
  std::span<const Term> terms;

 private:
  std::vector<Term> reordered_;  // only where the first weight is zero
};

/// data[i] /= number, for sums that become averages: a product with the rounded 1 / number would be off by
/// the same rounding every time. float16 and bfloat16 divide in float32. Throws InvalidArgument for integers.
void divide(DType dtype, void* data, double number, std::size_t count);
inline void divide(Buffer x, double number) {
  divide(x.dtype, x.host_data(), number, x.count);
}

}  // namespace starling::kernel
