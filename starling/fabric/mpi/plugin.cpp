#include "starling/fabric/mpi/engine.h"
#include "starling/fabric/mpi/mpi.h"
#include "starling/version.h"

// What load_fabric("mpi") finds. Ranks meet by what started them: there is no store.
extern "C" {
extern __attribute__((visibility("default"))) const char starling_fabric_version[];
const char starling_fabric_version[] = STARLING_VERSION;
}

extern "C" __attribute__((visibility("default"))) const starling::FabricPlugin* starling_fabric() {
  static const starling::FabricPlugin plugin = {
      [] { return starling::mpi_engine::library_text(); },
      [](const starling::FabricRequest& request) { return starling::join_mpi(request); }};
  return &plugin;
}
