#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "method/problem.h"
#include "starling/base/spec.h"
#include "starling/topology/schedule.h"

// Reference implementations of all methods from their equations: all ranks' vectors in one process, in long
// double, with matrices.

namespace starling::method {

using Matrix = std::vector<Vector>;
Vector operator+(Vector left, const Vector& right);
Vector operator-(Vector left, const Vector& right);
Vector operator*(Number factor, Vector vector);
/// The Euclidean norm.
Number norm(const Vector& vector);

/// Round t of a schedule as a matrix: row i holds the weights that rank i gives to each rank. A group's mean
/// comes first.
Matrix matrix_of(const Schedule& schedule, Step step);
/// Row i of `w` times the ranks' vectors.
Vector mixed(const Matrix& w, const std::vector<Vector>& x, std::size_t i);
/// Multiplies all rows.
std::vector<Vector> mixed(const Matrix& w, const std::vector<Vector>& x);

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

/// Computes U: the result is y + U(y, g).
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

/// A registered method with its parameters, on a topology.
struct DenseSetting {
  DenseSetting(const std::string& text, std::string on);
  Number number(const std::string& key, Number fallback) const;
  Step steps(const std::string& key, Step fallback) const { return static_cast<Step>(number(key, fallback)); }
  std::string text(const std::string& key, const std::string& fallback) const;

  Spec method;
  std::string topology;
};

/// All ranks of a run.
class Dense {
 public:
  Dense(const DenseSetting& setting, const Problem& problem, const LocalRule& rule);
  virtual ~Dense() = default;

  /// Whether a rank has no gradient in a step.
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
  /// from + U_i(from, g), or `from` itself in a step that i skips.
  Vector updated(std::size_t i, const Vector& from, const Vector& g);
  /// Every rank's x + U(x, g).
  std::vector<Vector> all_updated();
  /// A zero vector for each rank.
  std::vector<Vector> zeros() const { return std::vector<Vector>(n(), Vector(problem_.count)); }
  Vector mean_of(const std::vector<Vector>& vectors) const;
  /// The mean over the ranks that have a gradient; empty if none does.
  Vector mean_gradient() const;

  DenseSetting setting_;
  Problem problem_;
  LocalRule rule_;
  std::vector<LocalStep> local_;

 private:
  std::vector<bool> skipped_;
};

/// Base of the methods that follow a schedule.
class OnSchedule : public Dense {
 public:
  OnSchedule(const DenseSetting& setting, const Problem& problem, const LocalRule& rule);

 protected:
  Matrix round(Step t) const { return matrix_of(*schedule_, t); }
  SchedulePtr schedule_;
};

using DenseMaker = std::unique_ptr<Dense> (*)(const DenseSetting&, const Problem&, const LocalRule&);
template <typename D>
std::unique_ptr<Dense> make_dense_as(const DenseSetting& setting, const Problem& problem,
                                     const LocalRule& rule) {
  return std::make_unique<D>(setting, problem, rule);
}
/// Makers by registered name, one table per file.
using DenseTable = std::map<std::string, DenseMaker>;
DenseTable dense_averages();
DenseTable dense_lazy();
DenseTable dense_exact();
DenseTable dense_relays();
DenseTable dense_compressed();
DenseTable dense_async();
/// The two-block schedules (CECA), for any method.
std::unique_ptr<Dense> make_dense_ceca(const DenseSetting& setting, const Problem& problem,
                                       const LocalRule& rule);

std::unique_ptr<Dense> make_dense(const DenseSetting& setting, const Problem& problem, const LocalRule& rule);

}  // namespace starling::method
