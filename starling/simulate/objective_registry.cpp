#include "starling/simulate/objective_registry.h"

#include <fmt/format.h>

#include "starling/base/registry.h"
#include "starling/simulate/objective/list.h"

namespace starling::simulate {
namespace {

Registry<ObjectiveFamily>& all_objectives() {
  static Registry<ObjectiveFamily> instance("objective", {
#define STARLING_OBJECTIVE(name) objective::name(),
#include "starling/simulate/objective/list.inc"
#undef STARLING_OBJECTIVE
                                                         });
  return instance;
}

}  // namespace

ObjectivePtr make_objective(std::string_view text, Rank nodes, std::size_t dim, std::uint64_t seed) {
  const Spec spec = parse_spec(text);
  const ObjectiveFamily& family = all_objectives().find(spec);
  if (nodes < 1 || dim < 1)
    throw InvalidArgument(
        fmt::format("{}: needs at least 1 node and 1 dimension, not {} and {}", spec.word, nodes, dim));
  return family.make(Parameters(spec, family.parameters), {nodes, dim, seed});
}

std::string canonical_objective(std::string_view text) {
  return all_objectives().canonical(parse_spec(text)).to_string();
}

std::vector<ObjectiveFamily> objective_families() {
  return all_objectives().entries();
}

void register_objective(ObjectiveFamily family) {
  all_objectives().add(std::move(family));
}

}  // namespace starling::simulate
