#include "starling/topology/registry.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/registry.h"
#include "starling/topology/consistency.h"
#include "starling/topology/family/list.h"

namespace starling::topology {
namespace {

Family with_seed(Family family) {
  if (family.random) family.parameters.push_back({"seed", "0", "the draws, equal on every rank"});
  return family;
}

Registry<Family>& all_topologies() {
  static Registry<Family> instance(
      "topology",
      {
#define STARLING_FAMILY(name) with_seed(family::name()),
#include "starling/topology/family/list.inc"
#undef STARLING_FAMILY
      },
      [](ParameterKind, const Spec& nested) { return instance.canonical(nested); });
  return instance;
}

// Adds the seed and the ranks per machine to the spec, also in nested topologies, so that equal names mean
// equal schedules.
Spec completed(const Spec& spec, const TopologySetting& setting) {
  const Family& family = all_topologies().find(spec);
  const std::vector<Parameter>& declared = family.parameters;
  Spec complete = spec;
  std::vector<std::string> given;
  const auto local =
      std::find_if(declared.begin(), declared.end(), [](const Parameter& p) { return p.name == "local"; });
  TopologySetting nested = setting;
  if (local != declared.end()) nested.ranks_per_machine = 1;  // nested topologies run between machines
  std::size_t position = 0;
  for (Spec::Argument& argument : complete.arguments) {
    const std::size_t at =
        argument.key.empty() ? position++
                             : static_cast<std::size_t>(
                                   std::find_if(declared.begin(), declared.end(),
                                                [&](const Parameter& p) { return p.name == argument.key; }) -
                                   declared.begin());
    if (at >= declared.size()) continue;  // Parameters reports this
    given.push_back(declared[at].name);
    if (declared[at].kind == ParameterKind::topology && !argument.value.is_list)
      argument.value = completed(argument.value, nested);
  }
  const auto add = [&](const std::string& key, const std::string& value) {
    if (std::find(given.begin(), given.end(), key) == given.end())
      complete.arguments.push_back({key, Spec{value, false, {}}});
  };
  if (local != declared.end() && local->fallback == "auto" && setting.ranks_per_machine > 1 &&
      setting.n % setting.ranks_per_machine == 0)
    add("local", std::to_string(setting.ranks_per_machine));
  if (family.random) add("seed", std::to_string(setting.seed));
  return complete;
}

}  // namespace

SchedulePtr make_schedule(std::string_view text, Rank n, std::uint64_t seed) {
  return make_schedule(parse_spec(text), {n, seed});
}

SchedulePtr make_schedule(const Spec& spec, const TopologySetting& setting) {
  if (setting.n < 1)
    throw InvalidArgument(fmt::format("a topology needs at least one rank, not n = {}", setting.n));
  const Family& family = all_topologies().find(spec);
  Spec complete = completed(spec, setting);
  const auto schedule = family.make(Parameters(complete, family.parameters), setting);
  Spec canonical = all_topologies().canonical(complete);
  // A seed without effect is left out of the name.
  if (family.random && family.changing && !schedule->random()) {
    if (complete.arguments.size() > spec.arguments.size()) complete.arguments.pop_back();
    canonical.arguments.pop_back();
  }
  schedule->set_name(complete.to_string(), canonical.to_string());
  return schedule;
}

std::string canonical_topology(std::string_view text, std::uint64_t seed) {
  return all_topologies().canonical(completed(parse_spec(text), {1, seed})).to_string();
}

const Family& find_topology(const Spec& spec) {
  return all_topologies().find(spec);
}

std::vector<Family> topology_families() {
  return all_topologies().entries();
}

void register_topology(Family family) {
  family.make = [make = std::move(family.make), name = family.name](const Parameters& parameters,
                                                                    const TopologySetting& setting) {
    auto schedule = make(parameters, setting);
    check_consistent(*schedule, name);
    return schedule;
  };
  all_topologies().add(with_seed(std::move(family)));
}

void check_topology_spec(const std::string& text) {
  canonical_topology(text);
}

}  // namespace starling::topology
