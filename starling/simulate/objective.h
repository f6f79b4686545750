#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "starling/base/types.h"

namespace starling::simulate {

/// What the nodes minimize together: the mean of their own functions.
class Objective {
 public:
  Objective(Rank nodes, std::size_t dim);
  virtual ~Objective() = default;

  Rank nodes() const { return nodes_; }
  std::size_t dim() const { return dim_; }

  /// Where a node starts; by default zero for every node.
  virtual void start(Rank node, std::span<double> x) const;

  /// The node's gradient at x in this step: a pure function of its arguments, called from several threads.
  virtual void gradient(Rank node, Step step, std::span<const double> x, std::span<double> out) const = 0;
  /// In float32, for runs in that precision: by way of double unless an objective does better.
  virtual void gradient(Rank node, Step step, std::span<const float> x, std::span<float> out) const;
  /// Without noise and with all samples: gradient() of step 0 for objectives that draw nothing.
  virtual void exact_gradient(Rank node, std::span<const double> x, std::span<double> out) const;

  /// The mean of all nodes' functions at x.
  virtual double value(std::span<const double> x) const = 0;
  /// Its gradient: the mean of the exact ones, in the order of the nodes.
  virtual void mean_gradient(std::span<const double> x, std::span<double> out) const;
  double mean_gradient_norm(std::span<const double> x) const;

  /// Its least value and where it is, where they are known; computed once, by the first call that asks for
  /// gaps. Of a function that is not convex, the lowest that a central solver found from the start.
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
