#pragma once

namespace starling::tool {

/// Lists all families of topologies with their parameters, as text or JSON.
void list_topologies(bool json);

}  // namespace starling::tool
