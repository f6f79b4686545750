#pragma once

#include "starling/train/training_step.h"

namespace starling::train {

/// Sends a newcomer everything it needs to train on from this rank's step: optimizer settings and state,
/// parameters, buffers, the step and its progress. The newcomer compares SHA-256 digests and throws Error if
/// something was damaged on the way or its model is another one.
void send_state(Replica& replica, const TrainingStep::Progress& progress, Rank newcomer);
void receive_state(Replica& replica, TrainingStep::Progress& progress, Rank from);

}  // namespace starling::train
