#include "starling/topology/known_name.h"

#include <algorithm>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/topology/registry.h"

namespace starling {

void check_topology_name(const std::string& text) {
  const Spec spec = parse_spec(text);
  std::vector<std::string> names;
  for (const Family& family : topology_families()) names.push_back(family.name);
  if (std::find(names.begin(), names.end(), spec.word) == names.end())
    throw InvalidArgument(unknown_name("topology", spec.word, names));
}

}  // namespace starling
