#pragma once

#include <string>

#include "starling/base/floors.h"

namespace starling {

/// Identifies this host: equal for processes that can share memory. STARLING_HOST overrides it.
std::string host_identity();

}  // namespace starling
