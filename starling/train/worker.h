#pragma once

#include "starling/base/floors.h"

namespace starling::train {

/// Prepares a process for training: sets torch's threads, and makes malloc keep memory for the next step's
/// tensors instead of returning it to the kernel.
void prepare_worker(int threads);

}  // namespace starling::train
