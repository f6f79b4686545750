#pragma once

#include "starling/train/training_step.h"

namespace starling::train {

/// Sends a newcomer everything it needs to continue training from this rank's step: optimizer settings and
/// state, parameters, buffers, the step and its progress. The newcomer compares SHA-256 digests and throws
/// Error if data was damaged in transit or its model differs.
void send_state(Replica& replica, const TrainingStep::Progress& progress, Rank newcomer);
void receive_state(Replica& replica, TrainingStep::Progress& progress, Rank from);

}  // namespace starling::train
