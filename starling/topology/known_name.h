#pragma once

#include <string>

namespace starling::topology {

/// Throws InvalidArgument, with what may have been meant, for a topology that no family makes; whether it
/// suits a number of ranks is not looked at.
void check_topology_name(const std::string& text);

}  // namespace starling::topology
