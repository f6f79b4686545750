#include <fmt/format.h>

#include "starling/fabric/c10d/c10d.h"
#include "starling/version.h"

// The entry points that load_fabric("c10d") looks up.
extern "C" {
extern __attribute__((visibility("default"))) const char starling_fabric_version[];
const char starling_fabric_version[] = STARLING_VERSION;
}

extern "C" __attribute__((visibility("default"))) const starling::fabric::FabricPlugin* starling_fabric() {
  static const starling::fabric::FabricPlugin plugin = {
      [] { return fmt::format("torch {}, Gloo", TORCH_VERSION); },
      [](const starling::fabric::FabricRequest& request) { return starling::fabric::join_c10d(request); },
      [](const starling::fabric::FabricRequest& request, const starling::fabric::WrapFabric& wrap) {
        return starling::fabric::enter_c10d(request, wrap);
      }};
  return &plugin;
}
