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

/// What an objective is made for.
struct ObjectiveSetting {
  Rank nodes = 1;
  std::size_t dim = 1;  // of the data; networks have more parameters than that
  std::uint64_t seed = 0;
};

/// A named family of objectives: what the grammar knows, and how to make one.
struct ObjectiveFamily {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<ObjectivePtr(const Parameters&, const ObjectiveSetting&)> make;
  std::vector<std::string> aliases = {};
};

/// `make_objective("logistic(samples=100)", 300, 100, 1)`; throws InvalidArgument listing what is valid.
ObjectivePtr make_objective(std::string_view text, Rank nodes, std::size_t dim, std::uint64_t seed);

std::vector<ObjectiveFamily> objective_families();

/// The one spelling of all specs of objectives that mean the same, defaults filled in.
std::string canonical_objective(std::string_view text);

/// Adds an objective of the program's own under a new name. Thread-safe.
void register_objective(ObjectiveFamily family);

/// f_i(x) = 1/2 sum_k a_ik (x_k - b_ik)^2 from {"a": [[...], ...], "b": [[...], ...], "x0": [...]}, a row of
/// a and b per node, x0 optional. Throws Error naming file, row and what would be valid.
ObjectivePtr read_quadratic(const std::filesystem::path& path);

}  // namespace starling::simulate

namespace starling {
using simulate::make_objective;
using simulate::objective_families;
using simulate::ObjectiveFamily;
using simulate::ObjectiveSetting;
using simulate::register_objective;
}  // namespace starling
