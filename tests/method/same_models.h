#pragma once

#include <cmath>
#include <gtest/gtest.h>

#include "method/dense.h"
#include "method/on_flock.h"

namespace starling::method {

/// Compares all models of a run with the dense computation of the same steps. The tolerance is relative to
/// the largest element.
template <typename T>
testing::AssertionResult same_models(const Trajectory<T>& found, Dense& dense, Number tolerance) {
  for (Step step = 0; step < found.steps; ++step) {
    dense.run_step(step);
    for (Rank rank = 0; rank < found.problem.n; ++rank) {
      const std::vector<T> x = found.at(rank, step);
      const Vector& expected = dense.model(rank);
      Number scale = 0;
      for (const Number value : expected) scale = std::max(scale, std::abs(value));
      for (std::size_t k = 0; k < x.size(); ++k)
        if (!(std::abs(static_cast<Number>(x[k]) - expected[k]) <= tolerance * scale))
          return testing::AssertionFailure()
                 << "step " << step << " rank " << rank << " element " << k << ": " << x[k] << " instead of "
                 << static_cast<double>(expected[k]);
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace starling::method
