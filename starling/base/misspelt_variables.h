#pragma once

#include <string>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// One line for each environment variable that looks like a misspelled Starling variable, such as
/// STARLING_TIMOUT. Names that resemble none of ours are ignored.
std::vector<std::string> misspelt_variables();

}  // namespace starling
