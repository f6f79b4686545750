#pragma once

#include <cstddef>

#include "starling/record/run_log.h"
#include "starling/report/training_page.h"
#include "tool/torch/slow_worker.h"

// What the demo concludes, from the figures of its runs alone and whatever they say. Accuracies differ where
// the difference exceeds two standard errors on so many test samples.

namespace starling::tool {

/// Averaging with neighbors against all-reduce: the same data, steps and seeds.
Verdict accuracy_verdict(const RunLog& neighbors, const RunLog& all_reduce, std::size_t test_samples);

/// A run in which a worker was killed against one that was left alone.
Verdict death_verdict(const RunLog& killed, const RunLog& whole, Rank victim, std::size_t test_samples);

/// All-reduce and an asynchronous method beside a slow worker.
Verdict slow_worker_verdict(const SlowWorkerRun& all_reduce, const SlowWorkerRun& asynchronous, int workers,
                            int slowness, std::size_t test_samples);

}  // namespace starling::tool
