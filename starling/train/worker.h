#pragma once

#include "starling/base/floors.h"

namespace starling::train {

/// Prepares a process for training: sets torch's threads, and makes malloc keep memory for the next step's
/// tensors instead of returning it to the kernel.
void prepare_worker(int threads);

/// The number of GPUs that torch sees; 0 without CUDA. Uses the driver, so processes that are forked
/// afterwards cannot.
int gpus_of_torch();

}  // namespace starling::train
