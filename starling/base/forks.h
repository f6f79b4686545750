#pragma once

#include "starling/base/floors.h"

namespace starling {

/// The number of forks between this process and the first one that called this. A forked child must not act
/// as its parent's rank in a flock.
int forks_so_far();

}  // namespace starling
