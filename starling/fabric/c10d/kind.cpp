#include "starling/fabric/plugin.h"

namespace starling::fabric {

FabricKind c10d_fabric() {
  return {.name = "c10d",
          .summary = "torch.distributed: Gloo over TCP between hosts",
          .library = "starling_c10d",
          .store = "c10d",
          .found_with = "torch"};
}

}  // namespace starling::fabric
