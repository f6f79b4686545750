#pragma once

#include "starling/simulate/objective.h"

namespace starling::simulate {

/// Where the objective's mean is least, by L-BFGS from node 0's start with all data in one place: to the
/// smallest gradient that rounding allows. Of a function that is not convex, a minimum near the start.
std::vector<double> minimize(const Objective& objective);

}  // namespace starling::simulate
