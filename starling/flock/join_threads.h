#pragma once

#include <vector>

#include "starling/flock/flock.h"

namespace starling::flock {

/// Makes a flock of ranks that are threads of this process: element r belongs to the thread of rank r. A rank
/// leaves when the last handle of its flock is destroyed. join() knows nothing of them.
std::vector<Flock> join_as_threads(Rank size, const Faults& faults = {});

}  // namespace starling::flock
