#pragma once

#include <cstddef>
#include <span>

#include "starling/base/floors.h"

namespace starling {

/// Fills memory with unpredictable bytes from the system's random generator. Throws Error if that fails.
void fill_random(std::span<std::byte> memory);

}  // namespace starling
