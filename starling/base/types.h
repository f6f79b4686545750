#pragma once

#include <cstdint>

#include "starling/base/floors.h"

namespace starling {

/// A worker's number, 0 .. n-1.
using Rank = std::int32_t;

/// The number of a communication round; round 0 is the first.
using Step = std::int64_t;

}  // namespace starling
