#include "starling/topology/registry.h"

#include <algorithm>
#include <fmt/format.h>
#include <mutex>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/topology/family/list.h"

namespace starling {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<Family> families = {
#define STARLING_FAMILY(name) family::name(),
#include "starling/topology/family/list.inc"
#undef STARLING_FAMILY
  };
};

Registry& registry() {
  static Registry instance;
  return instance;
}

Family find_family(const std::string& name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const Family& family : all.families)
    if (family.name == name) return family;
  std::vector<std::string> names;
  for (const Family& family : all.families) names.push_back(family.name);
  throw InvalidArgument(unknown_name("topology", name, names));
}

std::vector<Parameter> all_parameters(const Family& family) {
  auto parameters = family.parameters;
  if (family.random) parameters.push_back({"seed", "0", "the draws, equal on every rank"});
  return parameters;
}

// The seed becomes part of the name, of nested topologies too, so that equal names mean equal schedules.
Spec with_seeds(const Spec& spec, std::uint64_t seed) {
  const Family family = find_family(spec.word);
  const auto declared = all_parameters(family);
  Spec complete = spec;
  bool has_seed = false;
  std::size_t position = 0;
  for (Spec::Argument& argument : complete.arguments) {
    const std::size_t at =
        argument.key.empty() ? position++
                             : static_cast<std::size_t>(
                                   std::find_if(declared.begin(), declared.end(),
                                                [&](const Parameter& p) { return p.name == argument.key; }) -
                                   declared.begin());
    if (at >= declared.size()) continue;  // Parameters will say so
    has_seed = has_seed || declared[at].name == "seed";
    if (declared[at].is_topology && !argument.value.is_list)
      argument.value = with_seeds(argument.value, seed);
  }
  if (family.random && !has_seed)
    complete.arguments.push_back({"seed", Spec{std::to_string(seed), false, {}}});
  return complete;
}

}  // namespace

SchedulePtr make_schedule(std::string_view text, Rank n, std::uint64_t seed) {
  return make_schedule(parse_spec(text), {n, seed});
}

SchedulePtr make_schedule(const Spec& spec, const TopologySetting& setting) {
  if (setting.n < 1)
    throw InvalidArgument(fmt::format("a topology needs at least one rank, not n = {}", setting.n));
  if (spec.is_list)
    throw InvalidArgument(fmt::format("expected a topology's name, not the list {}", spec.to_string()));
  Spec complete = with_seeds(spec, setting.seed);
  const Family family = find_family(spec.word);
  const auto schedule = family.make(Parameters(complete, all_parameters(family)), setting);
  // A seed that nobody gave and nothing drew from would only clutter the name.
  const bool seed_added = complete.arguments.size() > spec.arguments.size();
  if (seed_added && family.changing && !schedule->random()) complete.arguments.pop_back();
  schedule->set_name(complete.to_string());
  return schedule;
}

std::vector<Family> topology_families() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto families = all.families;
  for (Family& family : families) family.parameters = all_parameters(family);
  return families;
}

void register_topology(Family family) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const Family& existing : all.families)
    if (existing.name == family.name)
      throw InvalidArgument(fmt::format("a topology named '{}' exists already", family.name));
  all.families.push_back(std::move(family));
}

}  // namespace starling
