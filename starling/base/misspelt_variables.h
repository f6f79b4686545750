#pragma once

#include <string>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// A line for each variable of the environment that looks like a misspelt one of Starling's, such as
/// STARLING_TIMOUT. Names that are close to none are somebody else's.
std::vector<std::string> misspelt_variables();

}  // namespace starling
