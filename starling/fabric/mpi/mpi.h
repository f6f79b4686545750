#pragma once

#include <memory>
#include <mpi.h>

#include "starling/fabric/plugin.h"

namespace starling {

/// A fabric over a communicator that exists, which is duplicated; all of its ranks call this.
std::shared_ptr<Fabric> adopt_mpi(MPI_Comm communicator);

/// Starts MPI where nobody has, and joins all ranks that mpirun or srun started, or the first of them.
std::shared_ptr<Fabric> join_mpi(const FabricRequest& request);

}  // namespace starling
