#pragma once

namespace starling::tool {

/// Every family of topologies with its parameters, for people or as JSON.
void list_topologies(bool json);

}  // namespace starling::tool
