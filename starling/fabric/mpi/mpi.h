#pragma once

#include <memory>
#include <mpi.h>

#include "starling/fabric/plugin.h"

namespace starling::fabric {

/// Makes a fabric over a duplicate of an existing communicator. Collective: all of its ranks call this.
std::shared_ptr<Fabric> adopt_mpi(MPI_Comm communicator);

/// Initializes MPI if needed, and joins all ranks that mpirun or srun started, or the first `request.size` of
/// them.
std::shared_ptr<Fabric> join_mpi(const FabricRequest& request);

}  // namespace starling::fabric
