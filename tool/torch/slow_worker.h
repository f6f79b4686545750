#pragma once

#include <memory>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/train/experiment.h"

namespace starling::tool {

/// A training run whose last worker computes `slowness` times as long as the others.
struct SlowWorkerPlan {
  std::shared_ptr<const Task> task;
  std::string model = "lenet";
  std::string method;
  std::string topology = "ring";
  std::string optimizer;
  int workers = 4;
  int threads = 1;
  int slowness = 4;
  int steps = 100;  // per worker, on average
  std::uint64_t seed = 1;
};

/// The result of that run.
struct SlowWorkerRun {
  double seconds = 0;   // until all workers had made their steps
  double waiting = 0;   // fraction of the fast workers' time, on average
  double accuracy = 0;  // of the mean model
  double fast_steps = 0, slow_steps = 0;
};

/// Trains until all workers together have made `workers * steps` steps: equally many each if the method keeps
/// them in step; otherwise the slow one makes fewer and the others more. Throws Error if a worker fails.
SlowWorkerRun train_beside_slow_worker(const SlowWorkerPlan& plan);

}  // namespace starling::tool
