#pragma once

#include <functional>
#include <memory>
#include <string>

#include "method/problem.h"
#include "starling/topology/schedule.h"

// Every method once more, from its equations: all ranks' vectors in one place, long double, matrices.

namespace starling {

using Matrix = std::vector<Vector>;
/// Round t of a schedule as a matrix: row i hears column j; a group's mean first.
Matrix matrix_of(const Schedule& schedule, Step step);
/// Row i of `w` times the ranks' vectors.
Vector mixed(const Matrix& w, const std::vector<Vector>& x, std::size_t i);

/// A local optimizer with its settings.
struct LocalRule {
  std::string kind;  // sgd, adam or accum
  double lr = 0.05;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  bool decoupled = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  long s = 1;
};

/// U: y + U(y, g).
class LocalStep {
 public:
  explicit LocalStep(LocalRule rule) : rule_(std::move(rule)) {}
  Vector operator()(const Vector& y, const Vector& gradient);

 private:
  Number adam_move(Number m, Number v, long t) const;

  LocalRule rule_;
  Vector m_, v_, sum_;
  long t_ = 0;
};

/// All ranks at once.
class Dense {
 public:
  Dense(const Problem& problem, const LocalRule& rule);
  virtual ~Dense() = default;

  /// Ranks that have no gradient in a step.
  std::function<bool(Rank, Step)> skips = [](Rank, Step) { return false; };
  void run_step(Step t);
  virtual const Vector& model(Rank rank) const { return x[at(rank)]; }

  std::vector<Vector> x;

 protected:
  virtual void step(Step t) = 0;

  static std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }
  std::size_t n() const { return x.size(); }
  bool takes_part(std::size_t i) const { return !skipped_[i]; }
  Vector gradient(std::size_t i) const;
  /// x_i + U_i(x_i, g), or x_i itself in a step that i skips.
  Vector updated(std::size_t i, const Vector& from, const Vector& g);
  Vector mean_of(const std::vector<Vector>& vectors) const;
  /// Over those that have one; empty when nobody does.
  Vector mean_gradient() const;

  Problem problem_;
  std::vector<LocalStep> local_;

 private:
  std::vector<bool> skipped_;
};

/// `method` is a name without parameters; those are given apart.
struct DenseSetting {
  std::string method;
  std::string topology;
  Step every = 1;  // gossip-pga's h, local-sgd's tau
  std::string missing = {};
};
std::unique_ptr<Dense> make_dense(const DenseSetting& setting, const Problem& problem, const LocalRule& rule);

}  // namespace starling
