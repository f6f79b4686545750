#pragma once

#include <cstdint>
#include <mutex>

#include "starling/kernel/linear_model.h"
#include "starling/simulate/objective.h"
#include "starling/simulate/objective_registry.h"

namespace starling::simulate {

/// Every node has its own samples; f_i is their mean loss in a linear model, plus the non-convex regularizer
/// rho sum_k x_k^2 / (1 + x_k^2).
class LinearObjective : public Objective {
 public:
  struct Options {
    LinearLoss loss = LinearLoss::logistic;
    std::uint32_t samples = 1;  // per node
    std::uint32_t batch = 0;    // drawn per step, with repetition; 0: all
    double regularizer = 0;
  };
  /// `fill(node, s, row)` writes a row of `dim` elements (multiplied by its label for the logistic loss) and
  /// returns its target. Called node by node, with ascending s.
  LinearObjective(const ObjectiveSetting& setting, const Options& options,
                  const std::function<double(Rank, std::uint32_t, std::span<float>)>& fill);

  void gradient(Rank node, Step step, std::span<const double> x, std::span<double> out) const override;
  void gradient(Rank node, Step step, std::span<const float> x, std::span<float> out) const override;
  void exact_gradient(Rank node, std::span<const double> x, std::span<double> out) const override;
  double value(std::span<const double> x) const override;
  /// Computed once, by a central solver. Squares without regularizer are convex, and so are logistic losses.
  std::optional<std::vector<double>> minimizer() const override;

 private:
  template <typename T>
  void gradient_of(const LinearSamples& samples, std::size_t count, std::span<const T> x,
                   std::span<T> out) const;
  template <typename T>
  void gradient_in(Rank node, Step step, std::span<const T> x, std::span<T> out) const;
  LinearSamples samples_of(Rank node) const;

  Options options_;
  std::uint64_t seed_;
  std::size_t columns_;  // dim, padded
  std::size_t padded_;   // samples, padded
  std::vector<float> data_;
  std::vector<const float*> rows_;
  std::vector<double> targets_;
  std::vector<float> zeros_;
  mutable std::once_flag solved_;
  mutable std::vector<double> minimizer_;
};

}  // namespace starling::simulate
