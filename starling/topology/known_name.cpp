#include "starling/topology/known_name.h"

#include "starling/topology/registry.h"

namespace starling::topology {

void check_topology_name(const std::string& text) {
  find_topology(parse_spec(text));
}

}  // namespace starling::topology
