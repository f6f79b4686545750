#pragma once

#include "starling/record/run_log.h"
#include "starling/train/task.h"
#include "starling/train/trainer.h"

namespace starling::train {

/// Evaluates the mean model, with the test samples divided among the ranks, and each rank's own model on the
/// first `own_samples` of them; adds the results to the report. A collective.
void evaluate_run(Trainer& trainer, const Task& task, Model& model, int own_samples, RunReport& report);

}  // namespace starling::train
