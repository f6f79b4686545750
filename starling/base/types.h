#pragma once

#include <cstdint>

#include "starling/base/floors.h"

namespace starling {

/// The number of a rank, 0 .. n-1.
using Rank = std::int32_t;

/// The number of a step (communication round), from 0.
using Step = std::int64_t;

}  // namespace starling
