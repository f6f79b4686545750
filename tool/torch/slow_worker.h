#pragma once

#include <memory>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/train/experiment.h"

namespace starling::tool {

/// Workers of which the last computes `slowness` times as long as the others.
struct SlowWorkerPlan {
  std::shared_ptr<const Task> task;
  std::string model = "lenet";
  std::string method;
  std::string topology = "ring";
  std::string optimizer;
  int workers = 4;
  int threads = 1;
  int slowness = 4;
  int steps = 100;  // of a worker, on average
  std::uint64_t seed = 1;
};

/// What became of it.
struct SlowWorkerRun {
  double seconds = 0;   // until all had made their steps
  double waiting = 0;   // the share of the fast workers' time, on average
  double accuracy = 0;  // of the mean model
  double fast_steps = 0, slow_steps = 0;
};

/// Trains until all workers together have made `workers * steps` steps: equally many each where the method
/// keeps them in step; else the slow one makes fewer, and the others more. Throws Error when a worker fails.
SlowWorkerRun train_beside_slow_worker(const SlowWorkerPlan& plan);

}  // namespace starling::tool
