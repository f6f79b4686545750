#include "starling/fabric/mpi/engine.h"
#include "starling/fabric/mpi/mpi.h"
#include "starling/version.h"

// The entry points that load_fabric("mpi") looks up. MPI has its own rendezvous: there is no store.
extern "C" {
extern __attribute__((visibility("default"))) const char starling_fabric_version[];
const char starling_fabric_version[] = STARLING_VERSION;
}

extern "C" __attribute__((visibility("default"))) const starling::fabric::FabricPlugin* starling_fabric() {
  static const starling::fabric::FabricPlugin plugin = {
      [] { return starling::fabric::mpi_engine::library_text(); },
      [](const starling::fabric::FabricRequest& request) { return starling::fabric::join_mpi(request); }};
  return &plugin;
}
