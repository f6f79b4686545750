#pragma once

#include "tool/torch/train_job.h"

namespace starling::tool {

/// Whether start_workers() starts one process whose threads are the workers, as job.processes says: "one",
/// "each" (a process per worker) or "auto". `auto` means one if the workers share a GPU and end together
/// anyway when one of them fails. Throws InvalidArgument if the settings exclude one process.
bool share_a_process(const TrainJob& job, int workers);

/// Runs all workers as threads of this process; returns the exit status of the first that failed.
int run_worker_threads(const TrainJob& job, int workers);

}  // namespace starling::tool
