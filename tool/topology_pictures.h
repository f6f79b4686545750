#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "starling/report/page.h"

namespace starling::tool {

/// Pictures of these topologies on 8 ranks, without duplicates: few enough to see the edges. A topology that
/// does not exist at this size has no picture.
std::vector<Picture> topology_pictures(const std::vector<std::string>& names, std::uint64_t seed);

}  // namespace starling::tool
