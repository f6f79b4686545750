#pragma once

#include <cstddef>

#include "starling/record/run_log.h"
#include "starling/report/training_page.h"
#include "tool/torch/slow_worker.h"

// The demo's conclusions, which depend only on the figures of its runs. Accuracies count as different if the
// difference exceeds two standard errors for this number of test samples.

namespace starling::tool {

/// Averaging with neighbors against all-reduce: the same data, steps and seeds.
Verdict accuracy_verdict(const RunLog& neighbors, const RunLog& all_reduce, std::size_t test_samples);

/// A run in which a worker was killed against one without a kill.
Verdict death_verdict(const RunLog& killed, const RunLog& whole, Rank victim, std::size_t test_samples);

/// All-reduce and an asynchronous method with a slow worker.
Verdict slow_worker_verdict(const SlowWorkerRun& all_reduce, const SlowWorkerRun& asynchronous, int workers,
                            int slowness, std::size_t test_samples);

}  // namespace starling::tool
