#pragma once

#include <string>

#include "starling/base/floors.h"

namespace starling {

/// What tells hosts apart: the same for processes that can share memory. STARLING_HOST pretends another.
std::string host_identity();

}  // namespace starling
