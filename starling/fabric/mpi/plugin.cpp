#include "starling/fabric/mpi/engine.h"
#include "starling/fabric/mpi/mpi.h"

// What load_fabric("mpi") finds. Ranks meet by what started them: there is no store.
extern "C" __attribute__((visibility("default"))) const starling::FabricPlugin* starling_fabric() {
  static const starling::FabricPlugin plugin = {
      [] { return starling::mpi_engine::library_text(); },
      [](const starling::FabricRequest& request) { return starling::join_mpi(request); }};
  return &plugin;
}
