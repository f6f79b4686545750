#pragma once

#include <vector>

#include "starling/base/random.h"
#include "starling/base/types.h"

// The objective of the methods' tests: every rank has its own parabola, and no rank's minimum is the flock's.

namespace starling::method {

using Number = long double;
using Vector = std::vector<Number>;

/// f_i(x) = 1/2 sum_k a_ik (x_k - c_ik)^2. Its coefficients are float32 numbers, so every type computes the
/// same function.
struct Problem {
  Rank n = 1;
  std::size_t count = 7;
  bool equal_starts = false;
  std::size_t first = 0;  // offset in a larger problem, whose parts are independent

  float curvature(Rank rank, std::size_t k) const { return draw(rank, first + k, 1, 0.5, 1.5); }
  float minimum(Rank rank, std::size_t k) const { return draw(rank, first + k, 2, -2, 2); }
  float start(Rank rank, std::size_t k) const { return draw(equal_starts ? 0 : rank, first + k, 3, -1, 1); }

  template <typename T>
  void gradient(Rank rank, const T* x, T* out) const {
    for (std::size_t k = 0; k < count; ++k)
      out[k] = static_cast<T>(curvature(rank, k)) * (x[k] - static_cast<T>(minimum(rank, k)));
  }
  template <typename T>
  std::vector<T> start_of(Rank rank) const {
    std::vector<T> x(count);
    for (std::size_t k = 0; k < count; ++k) x[k] = static_cast<T>(start(rank, k));
    return x;
  }

  /// The minimum of the sum over all ranks.
  Vector optimum() const {
    Vector best(count);
    for (std::size_t k = 0; k < count; ++k) {
      Number weights = 0;
      for (Rank rank = 0; rank < n; ++rank) {
        best[k] += static_cast<Number>(curvature(rank, k)) * minimum(rank, k);
        weights += curvature(rank, k);
      }
      best[k] /= weights;
    }
    return best;
  }

 private:
  static float draw(Rank rank, std::size_t k, std::uint32_t what, double low, double high) {
    Random random(static_cast<std::uint64_t>(rank) * 1000 + k, what, 0);
    return static_cast<float>(low + random.uniform() * (high - low));
  }
};

}  // namespace starling::method
