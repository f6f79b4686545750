#pragma once

#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// The middle value, or the mean of the two in the middle. Throws Error where there is none.
double median(std::vector<double> values);

}  // namespace starling
