#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "starling/base/types.h"

namespace starling::simulate {

/// The function that the nodes minimize together: the mean of their own functions. Thread-safe.
class Objective {
 public:
  Objective(Rank nodes, std::size_t dim);
  virtual ~Objective() = default;

  Rank nodes() const { return nodes_; }
  std::size_t dim() const { return dim_; }

  /// The start point of a node; by default zero.
  virtual void start(Rank node, std::span<double> x) const;

  /// The node's gradient at x in this step: a pure function of its arguments, called from several threads.
  virtual void gradient(Rank node, Step step, std::span<const double> x, std::span<double> out) const = 0;
  /// The gradient in float32, for runs in that precision; the default converts from double.
  virtual void gradient(Rank node, Step step, std::span<const float> x, std::span<float> out) const;
  /// The gradient without noise and with all samples; for objectives without random draws, gradient() of step
  /// 0.
  virtual void exact_gradient(Rank node, std::span<const double> x, std::span<double> out) const;

  /// The mean of all nodes' functions at x.
  virtual double value(std::span<const double> x) const = 0;
  /// The gradient of value(): the mean of the exact gradients, in the order of the nodes.
  virtual void mean_gradient(std::span<const double> x, std::span<double> out) const;
  double mean_gradient_norm(std::span<const double> x) const;

  /// The least value and the minimizer, if known; computed once, by the first call that asks for gaps. For a
  /// function that is not convex, the lowest value that a central solver found from the start.
  virtual std::optional<double> least_value() const;
  virtual std::optional<std::vector<double>> minimizer() const;

 private:
  Rank nodes_;
  std::size_t dim_;
};
using ObjectivePtr = std::shared_ptr<const Objective>;

}  // namespace starling::simulate

namespace starling {
using simulate::Objective;
using simulate::ObjectivePtr;
}  // namespace starling
