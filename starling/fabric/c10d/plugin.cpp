#include <fmt/format.h>

#include "starling/fabric/c10d/c10d.h"
#include "starling/version.h"

// What load_fabric("c10d") finds.
extern "C" {
extern __attribute__((visibility("default"))) const char starling_fabric_version[];
const char starling_fabric_version[] = STARLING_VERSION;
}

extern "C" __attribute__((visibility("default"))) const starling::FabricPlugin* starling_fabric() {
  static const starling::FabricPlugin plugin = {
      [] { return fmt::format("torch {}, Gloo", TORCH_VERSION); },
      [](const starling::FabricRequest& request) { return starling::join_c10d(request); },
      [](const starling::FabricRequest& request, const starling::FinishFabric& finish) {
        return starling::enter_c10d(request, finish);
      }};
  return &plugin;
}
