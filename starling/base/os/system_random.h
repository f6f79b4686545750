#pragma once

#include <cstddef>
#include <span>

#include "starling/base/floors.h"

namespace starling {

/// Fills memory with bits of the system's random generator, which nobody can guess. Throws Error if there are
/// none.
void fill_random(std::span<std::byte> memory);

}  // namespace starling
