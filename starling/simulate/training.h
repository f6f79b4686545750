#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/dtype.h"
#include "starling/method/defaults.h"
#include "starling/simulate/objective.h"
#include "starling/simulate/time_model.h"
#include "starling/topology/schedule.h"

namespace starling::simulate {

/// A view of all nodes' models at one moment, for observers.
class SimulatedModels {
 public:
  SimulatedModels(const std::vector<double>& values, std::size_t dim) : values_(values), dim_(dim) {}
  std::span<const double> operator()(Rank node) const {
    return std::span(values_).subspan(static_cast<std::size_t>(node) * dim_, dim_);
  }
  Rank nodes() const { return static_cast<Rank>(values_.size() / dim_); }

 private:
  const std::vector<double>& values_;
  std::size_t dim_;
};

/// Options of a training run of many nodes in one process, with the methods, channels and orders of a real
/// flock but without its processes.
struct TrainingOptions {
  std::string method = kDefaultMethod;
  std::string topology = kDefaultTopology;
  SchedulePtr schedule = nullptr;  // the program's own, instead of the topology
  std::string optimizer = kDefaultOptimizer;
  double lr = 0.01;      // passed to the optimizer
  double decay = 1;      // divides lr every `decay_every` steps
  Step decay_every = 0;  // in steps; 0: never
  Step steps = 1000;
  std::uint64_t seed = 0;
  DType precision = DType::float64;  // or float32
  int threads = 0;                   // 0: one per core; the result does not depend on it
  double drop = 0;                   // fraction of the neighbors' messages that are lost
  TimeModel time;
  Step points = 50;  // the largest number of points of the curve
  /// Called with all nodes' models before the first step (0) and after every step; for asynchronous methods
  /// when the last node has made it.
  std::function<void(Step, const SimulatedModels&)> observe;
  /// Called from time to time; return false to end the training.
  std::function<bool(Step)> progress;
};

struct TrainingPoint {
  Step step = 0;             // of all nodes; for asynchronous methods the mean number of steps
  double gap = 0;            // f(mean model) - least value; f itself if that is not known
  double gradient_norm = 0;  // of f at the mean model
  double consensus = 0;      // root mean square distance of the models to their mean
  double distance = 0;   // root mean square distance of the models to the minimizer; 0 if that is not known
  double bytes = 0;      // sent by all nodes so far
  double seconds = 0;    // modeled
  double staleness = 0;  // mean age, in steps, of the values that asynchronous methods have used
};

/// Where a training run ended because numbers were not finite any more.
struct Divergence {
  Step step = 0;  // at the point of the curve at which it was detected
  Rank node = 0;  // the first node whose model is not finite, or else the one with the largest

  /// "node 3's model was not finite at step 120"
  std::string text() const;
};

struct TrainingResult {
  std::string method;
  std::string topology;  // the schedule's name; "" if the method follows none
  std::string warning;
  bool gap_known = false;
  std::optional<Divergence> diverged = {};  // checked at the points of the curve
  std::vector<TrainingPoint> curve;
  double wall_seconds = 0;      // of the steps, without the evaluations for the curve
  double gradient_seconds = 0;  // the part of these spent on gradients
  double bytes = 0;
  double modelled_seconds = 0;
  Step oldest = 0;  // staleness
  std::vector<double> mean_model;
  std::vector<double> models;  // of all nodes at the last point of the curve, node by node
};

TrainingResult run_training(const Objective& objective, const TrainingOptions& options);

}  // namespace starling::simulate

namespace starling {
using simulate::run_training;
using simulate::TrainingOptions;
using simulate::TrainingPoint;
using simulate::TrainingResult;
}  // namespace starling
