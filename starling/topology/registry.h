#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/topology/schedule.h"

namespace starling::topology {

/// What a family is made for.
struct TopologySetting {
  Rank n = 1;
  std::uint64_t seed = 0;      // for random families that give no seed= of their own
  Rank ranks_per_machine = 1;  // for families whose local= is auto
};

/// A named family of topologies: what the grammar knows, and how to build one.
struct Family {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<std::shared_ptr<Schedule>(const Parameters&, const TopologySetting&)> make;
  bool random = false;    // takes seed=, which registering adds to its parameters
  bool changing = false;  // with the step
  std::vector<std::string> aliases = {};
};

/// `make_schedule("base(k=2)", 24)`; throws InvalidArgument listing what is valid.
SchedulePtr make_schedule(std::string_view text, Rank n, std::uint64_t seed = 0);
SchedulePtr make_schedule(const Spec& spec, const TopologySetting& setting);

/// The one spelling of all specs that mean the same topology: defaults filled in, `seed` where a seed is
/// missing.
std::string canonical_topology(std::string_view text, std::uint64_t seed = 0);

/// All families, in the order of the specification; a program's own come last.
std::vector<Family> topology_families();
/// The family that a spec names; throws InvalidArgument with what may have been meant.
const Family& find_topology(const Spec& spec);
/// Throws InvalidArgument, with what may have been meant, for a topology that no family makes and for
/// parameters that its family does not take; whether it suits a number of ranks is not looked at.
void check_topology_spec(const std::string& text);

/// Adds a family of the program's own under a new name. Thread-safe. What it makes is checked whenever it is
/// made: rows that sum to one, and destinations that match the sources (consistency.h).
void register_topology(Family family);

}  // namespace starling::topology

namespace starling {
using topology::make_schedule;
using topology::register_topology;
using topology::topology_families;
using topology::TopologySetting;
}  // namespace starling
