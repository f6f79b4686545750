#pragma once

#include "method/on_flock.h"
#include "starling/simulate/training.h"

// Runs the methods' test problem on simulated nodes and records every model.

namespace starling::simulate {

class ProblemObjective : public Objective {
 public:
  explicit ProblemObjective(const Problem& problem)
      : Objective(problem.n, problem.count), problem_(problem) {}

  void start(Rank node, std::span<double> x) const override {
    std::ranges::copy(problem_.start_of<double>(node), x.begin());
  }
  void gradient(Rank node, Step, std::span<const double> x, std::span<double> out) const override {
    problem_.gradient(node, x.data(), out.data());
  }
  void gradient(Rank node, Step, std::span<const float> x, std::span<float> out) const override {
    problem_.gradient(node, x.data(), out.data());
  }
  double value(std::span<const double> x) const override {
    double sum = 0;
    for (Rank node = 0; node < nodes(); ++node)
      for (std::size_t k = 0; k < x.size(); ++k) {
        const double off = x[k] - problem_.minimum(node, k);
        sum += problem_.curvature(node, k) * off * off / 2;
      }
    return sum / nodes();
  }

 private:
  Problem problem_;
};

/// Computes trajectory() in the simulator.
template <typename T>
Trajectory<T> simulated(const MethodRun& run, int threads = 1) {
  Trajectory<T> found{run.problem, run.steps, {}};
  found.values.resize(static_cast<std::size_t>(run.problem.n * run.steps) * run.problem.count);
  TrainingOptions options;
  options.method = run.options.method;
  options.topology = run.options.topology;
  options.optimizer = run.options.optimizer;
  options.lr = parse_optimizer(run.options.optimizer).hyper.lr;
  options.seed = run.options.seed;
  options.steps = run.steps;
  options.threads = threads;
  options.time.ranks_per_host = run.problem.n;  // as on a flock of this machine
  if (run.in_turns) options.time.link = options.time.inside = {0, 0};
  options.precision = sizeof(T) == sizeof(float) ? DType::float32 : DType::float64;
  options.observe = [&](Step step, const SimulatedModels& models) {
    for (Rank node = 0; node < run.problem.n && step > 0; ++node) {
      const auto begin = static_cast<std::size_t>(node * run.steps + step - 1) * run.problem.count;
      for (std::size_t k = 0; k < run.problem.count; ++k)
        found.values[begin + k] = static_cast<T>(models(node)[k]);
    }
  };
  run_training(ProblemObjective(run.problem), options);
  return found;
}

}  // namespace starling::simulate
