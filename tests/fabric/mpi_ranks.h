#pragma once

#include "fabric/harness.h"

namespace starling::fabric {

/// For ranks started by mpirun, which all run the same tests in the same order: the first ones run the body,
/// and all ranks receive the results. Only rank 0 prints.
std::vector<Launcher> mpi_launchers();

}  // namespace starling::fabric
