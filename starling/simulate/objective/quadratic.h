#pragma once

#include <cstdint>

#include "starling/simulate/objective.h"

namespace starling::simulate {

/// f_i(x) = 1/2 sum_k a_ik (x_k - b_ik)^2; gradients are exact or have normal noise.
class Quadratic : public Objective {
 public:
  struct Data {
    std::vector<double> a, b;  // nodes x dim, one row per node
    std::vector<double> start;
    double noise = 0;  // standard deviation of the noise of every coordinate of every gradient
    std::uint64_t seed = 0;
  };
  /// Throws InvalidArgument unless a and b have nodes x dim elements and the start has dim.
  Quadratic(Rank nodes, Data data);

  void start(Rank node, std::span<double> x) const override;
  using Objective::gradient;
  void gradient(Rank node, Step step, std::span<const double> x, std::span<double> out) const override;
  void exact_gradient(Rank node, std::span<const double> x, std::span<double> out) const override;
  double value(std::span<const double> x) const override;
  /// Empty if the mean curves downwards, or not at all, in some direction.
  std::optional<std::vector<double>> minimizer() const override;

 private:
  Data data_;
};

}  // namespace starling::simulate
