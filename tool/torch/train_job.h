#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "starling/train/experiment.h"

namespace starling::tool {

/// A training run and the outputs of its results.
struct TrainJob {
  Experiment experiment;
  CheckpointOptions checkpoints = {};
  int threads = 0;                 // torch threads per worker; 0: cores / workers
  std::string processes = "each";  // of the workers: each, one or auto; see worker_threads.h
  std::string metrics;             // the file of the run log; "" for none
  std::string report;              // the file of the HTML page made from the log; "" for none
  /// Loaded before the workers are forked, so that they share its memory; without it each worker loads its
  /// own.
  std::shared_ptr<const Task> task = nullptr;
  /// Called on every worker with each event.
  std::function<void(Flock&, const RunEvent&)> on_event = nullptr;
};

/// Keeps torch from starting threads in this process, which its forks could not use. Call it before any
/// computation.
void prepare_for_workers();

/// Prints what is started, loads the data, forks `workers` (or one process with a thread for each, see
/// TrainJob::processes) from this process and waits for their end. Returns the exit status.
int start_workers(TrainJob job, int workers);

/// Runs one worker. Errors, including those of `check`, are reported once and determine exit_status().
void be_worker(Flock& flock, const TrainJob& job, const std::function<void()>& check = nullptr);

/// Joins the flock that this process was started in, with the faults that the experiment contains.
Flock join_for(const Experiment& experiment);
/// Makes the flock of workers that are threads of this process, with these faults.
std::vector<Flock> join_for_threads(const Experiment& experiment, int workers);

}  // namespace starling::tool
