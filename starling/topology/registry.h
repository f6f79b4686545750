#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/topology/schedule.h"

namespace starling::topology {

/// What a topology is built for.
struct TopologySetting {
  Rank n = 1;
  std::uint64_t seed = 0;      // for random families whose spec has no seed=
  Rank ranks_per_machine = 1;  // for families whose local= is auto
};

/// A named family of topologies: what the spec grammar needs, and the function that builds one.
struct Family {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<std::shared_ptr<Schedule>(const Parameters&, const TopologySetting&)> make;
  bool random = false;    // takes seed=, which registering adds to its parameters
  bool changing = false;  // with the step
  std::vector<std::string> aliases = {};
};

/// Builds a schedule, as in `make_schedule("base(k=2)", 24)`; throws InvalidArgument with what is valid.
SchedulePtr make_schedule(std::string_view text, Rank n, std::uint64_t seed = 0);
SchedulePtr make_schedule(const Spec& spec, const TopologySetting& setting);

/// The canonical spelling, equal for all specs of the same topology: defaults filled in, `seed` where a seed
/// is missing.
std::string canonical_topology(std::string_view text, std::uint64_t seed = 0);

/// All families in the order of family/list.inc, then those that the program registered.
std::vector<Family> topology_families();
/// The family that a spec names; throws InvalidArgument with the closest name.
const Family& find_topology(const Spec& spec);
/// Throws InvalidArgument, with the closest name, for unknown topologies and for parameters that the family
/// does not take. Does not check whether the topology suits a number of ranks.
void check_topology_spec(const std::string& text);

/// Registers a family under a new name. Thread-safe. Every schedule that it builds is checked: rows that sum
/// to one, and destinations that match the sources (consistency.h).
void register_topology(Family family);

}  // namespace starling::topology

namespace starling {
using topology::make_schedule;
using topology::register_topology;
using topology::topology_families;
using topology::TopologySetting;
}  // namespace starling
