#pragma once

#include <string>

#include "starling/simulate/time_model.h"

namespace starling::tool {

/// Reads a time model of `nodes` nodes from a TOML file (docs/simulate.md has all keys). Throws Error with
/// file, line, key and what is valid.
TimeModel read_time_file(const std::string& path, Rank nodes);

}  // namespace starling::tool
