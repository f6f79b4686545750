#include "starling/fabric/hybrid/hybrid.h"
#include "starling/fabric/plugin.h"

namespace starling::fabric {

FabricKind hybrid_fabric() {
  return {.name = "hybrid",
          .summary = "shared memory within a host, c10d between hosts; hybrid(mpi): MPI between them",
          .store = "c10d",
          .wrap = [](const FabricRequest& request) { return wrap_in_hybrid(request.job, request.timeout); },
          .needs_job = true};
}

}  // namespace starling::fabric
