#pragma once

#include <functional>
#include <memory>
#include <string>

#include "starling/train/experiment.h"

namespace starling::tool {

/// A training run and what becomes of its results.
struct TrainJob {
  Experiment experiment;
  CheckpointOptions checkpoints = {};
  int threads = 0;      // of torch, per worker; 0: the cores shared out
  std::string metrics;  // the run's log; empty: none
  std::string report;   // its page, made from the log; empty: none
  /// Loaded before the workers are forked, so that they share its memory; without it each loads its own.
  std::shared_ptr<const Task> task = nullptr;
  /// Called on every worker with what happens there.
  std::function<void(Flock&, const RunEvent&)> on_event = nullptr;
};

/// Keeps torch from starting threads in this process, which forks of it could not use. Before anything is
/// computed here.
void prepare_for_workers();

/// Says what is started, loads the data, forks `workers` from this process and waits for their end. Returns
/// the exit status.
int start_workers(TrainJob job, int workers);

/// One worker's part. What goes wrong, in `check` too, is told once, and decides exit_status().
void be_worker(Flock& flock, const TrainJob& job, const std::function<void()>& check = nullptr);

/// Joins the flock that this process was started in, with the faults that the experiment asks for.
Flock join_for(const Experiment& experiment);

}  // namespace starling::tool
