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

// The seed and the ranks per machine become part of the name, of nested topologies too, so that equal names
// mean equal schedules.
Spec completed(const Spec& spec, const TopologySetting& setting) {
  const Family family = find_family(spec.word);
  const auto declared = all_parameters(family);
  Spec complete = spec;
  std::vector<std::string> given;
  const auto local =
      std::find_if(declared.begin(), declared.end(), [](const Parameter& p) { return p.name == "local"; });
  TopologySetting nested = setting;
  if (local != declared.end()) nested.ranks_per_machine = 1;  // what is nested runs between machines
  std::size_t position = 0;
  for (Spec::Argument& argument : complete.arguments) {
    const std::size_t at =
        argument.key.empty() ? position++
                             : static_cast<std::size_t>(
                                   std::find_if(declared.begin(), declared.end(),
                                                [&](const Parameter& p) { return p.name == argument.key; }) -
                                   declared.begin());
    if (at >= declared.size()) continue;  // Parameters will say so
    given.push_back(declared[at].name);
    if (declared[at].is_topology && !argument.value.is_list)
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
  if (spec.is_list)
    throw InvalidArgument(fmt::format("expected a topology's name, not the list {}", spec.to_string()));
  Spec complete = completed(spec, setting);
  const Family family = find_family(spec.word);
  const auto schedule = family.make(Parameters(complete, all_parameters(family)), setting);
  // A seed that nobody gave and nothing drew from would only clutter the name.
  const bool seed_added = family.random && complete.arguments.size() > spec.arguments.size();
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
