#pragma once

#include <vector>

#include "starling/train/description.h"
#include "starling/train/replica.h"

namespace starling::train {

// Descriptions of what a rank trains, and how, which ranks and checkpoints compare.

/// The method and its schedule.
Description describe_method(const Replica& replica);
/// The trainer's other options.
Description describe_options(const Replica& replica);
/// Shapes and types of the parameters and, `with_buffers`, of the buffers.
Description describe_model(const Replica& replica, bool with_buffers = true);
/// The optimizer's class, the parameters that it trains, and their buckets.
Description describe_optimizer(const Replica& replica);

/// Compares what all ranks train; a collective. `step` is this rank's own, or Cohort::kNew for a newcomer,
/// whose optimizer settings do not count; `call` is the user's call, for errors. Returns all ranks' steps.
/// Throws InvalidArgument on all ranks with the first difference.
std::vector<Step> agree_on_settings(Replica& replica, Step step, const std::string& call);

}  // namespace starling::train
