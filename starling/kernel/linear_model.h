#pragma once

#include <cstddef>
#include <span>

#include "starling/base/dtype.h"

namespace starling::kernel {

/// The loss of a linear model for a sample with margin m = row . x: log(1 + exp(-m)), with the row multiplied
/// by its label +1 or -1 beforehand, or (m - target)^2 / 2.
enum class LinearLoss { logistic, squares };

/// The number of columns that rows are padded to with zeros, and the number of rows given, are multiples of
/// these.
inline constexpr std::size_t kLinearColumns = 8;
inline constexpr std::size_t kLinearRows = 4;

/// Samples of a linear model. Rows are float32 whatever the computation uses: that halves the bytes, and
/// every float is also a double.
struct LinearSamples {
  std::span<const float* const> rows;
  std::span<const double> targets;  // one per row; only for squares
  std::size_t columns = 0;
};

/// out = scale * the sum over samples of loss'(m) row, in float64 or float32; x and out have `columns`
/// elements. One pass over the rows. Same bits on every instruction set.
void linear_gradient(DType dtype, LinearLoss loss, const LinearSamples& samples, const void* x, double scale,
                     void* out);

/// The sum of the samples' losses, in float64.
double linear_loss(LinearLoss loss, const LinearSamples& samples, const double* x);

}  // namespace starling::kernel
