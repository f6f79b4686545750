#pragma once

#include "starling/simulate/objective.h"

namespace starling::simulate {

/// The minimizer of the objective's mean, by L-BFGS from node 0's start with all data in one place, up to the
/// smallest gradient that rounding allows. For a function that is not convex, a minimum near the start.
std::vector<double> minimize(const Objective& objective);

}  // namespace starling::simulate
