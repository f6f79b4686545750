#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/simulate/objective.h"

namespace starling::simulate {

/// What an objective is built for.
struct ObjectiveSetting {
  Rank nodes = 1;
  std::size_t dim = 1;  // of the data; networks have more parameters
  std::uint64_t seed = 0;
};

/// A named family of objectives: what the spec grammar needs, and the function that makes one.
struct ObjectiveFamily {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<ObjectivePtr(const Parameters&, const ObjectiveSetting&)> make;
  std::vector<std::string> aliases = {};
};

/// Makes an objective, as in `make_objective("logistic(samples=100)", 300, 100, 1)`; throws InvalidArgument
/// with what is valid.
ObjectivePtr make_objective(std::string_view text, Rank nodes, std::size_t dim, std::uint64_t seed);

std::vector<ObjectiveFamily> objective_families();

/// The canonical spelling, equal for all specs of the same objective, with defaults filled in.
std::string canonical_objective(std::string_view text);

/// Registers an objective under a new name. Thread-safe.
void register_objective(ObjectiveFamily family);

/// Reads f_i(x) = 1/2 sum_k a_ik (x_k - b_ik)^2 from {"a": [[...], ...], "b": [[...], ...], "x0": [...]},
/// with one row of a and b per node; x0 is optional. Throws Error with the file, the row and what is valid.
ObjectivePtr read_quadratic(const std::filesystem::path& path);

}  // namespace starling::simulate

namespace starling {
using simulate::make_objective;
using simulate::objective_families;
using simulate::ObjectiveFamily;
using simulate::ObjectiveSetting;
using simulate::register_objective;
}  // namespace starling
