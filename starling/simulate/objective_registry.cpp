#include "starling/simulate/objective_registry.h"

#include <fmt/format.h>
#include <mutex>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/simulate/objective/list.h"

namespace starling {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<ObjectiveFamily> families = {
#define STARLING_OBJECTIVE(name) objectives::name(),
#include "starling/simulate/objective/list.inc"
#undef STARLING_OBJECTIVE
  };
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

ObjectivePtr make_objective(std::string_view text, Rank nodes, std::size_t dim, std::uint64_t seed) {
  const Spec spec = parse_spec(text);
  if (spec.is_list)
    throw InvalidArgument(fmt::format("expected an objective's name, not the list {}", spec.to_string()));
  if (nodes < 1 || dim < 1)
    throw InvalidArgument(
        fmt::format("{}: needs at least 1 node and 1 dimension, not {} and {}", spec.word, nodes, dim));
  std::vector<std::string> names;
  for (const ObjectiveFamily& family : objective_families()) {
    if (family.name == spec.word) return family.make(Parameters(spec, family.parameters), {nodes, dim, seed});
    names.push_back(family.name);
  }
  throw InvalidArgument(unknown_name("objective", spec.word, names));
}

std::vector<ObjectiveFamily> objective_families() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.families;
}

void register_objective(ObjectiveFamily family) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const ObjectiveFamily& existing : all.families)
    if (existing.name == family.name)
      throw InvalidArgument(fmt::format("an objective named '{}' exists already", family.name));
  all.families.push_back(std::move(family));
}

}  // namespace starling
