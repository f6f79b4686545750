#include "starling/fabric/plugin.h"

namespace starling::fabric {

FabricKind mpi_fabric() {
  return {.name = "mpi",
          .summary = "MPI, as mpirun and srun start it",
          .library = "starling_mpi",
          .found_with = "MPI"};
}

}  // namespace starling::fabric
