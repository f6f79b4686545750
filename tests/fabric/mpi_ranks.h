#pragma once

#include "fabric/harness.h"

namespace starling {

/// On ranks that mpirun has started, all of which run the same tests in the same order: the first ones run
/// the body, and everybody hears how they ended. Only rank 0 prints.
std::vector<Launcher> mpi_launchers();

}  // namespace starling
