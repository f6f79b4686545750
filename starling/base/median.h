#pragma once

#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// The middle value, or the mean of the two middle values. Throws Error if there are no values.
double median(std::vector<double> values);

}  // namespace starling
