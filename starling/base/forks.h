#pragma once

#include "starling/base/floors.h"

namespace starling {

/// How many forks lie between this process and the first one that asked: a child must not use its parent's
/// place in a flock.
int forks_so_far();

}  // namespace starling
