#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/method/method.h"

namespace starling::method {

/// A named family of methods: what the spec grammar needs, and the function that makes one.
struct MethodFamily {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<MethodPtr(const Parameters&)> make;
  std::vector<std::string> aliases = {};
};

/// Makes a method, as in `make_method("local-sgd(tau=8)")`; throws InvalidArgument with what is valid.
MethodPtr make_method(std::string_view text);

/// All families in the order of family/list.inc, then those that the program registered.
std::vector<MethodFamily> method_families();
/// The family that a spec names; throws InvalidArgument with the closest name.
const MethodFamily& find_method(const Spec& spec);

/// The canonical spelling, equal for all specs of the same method: `local-sgd(tau=8)` for `local-sgd`.
std::string canonical_method(std::string_view text);

/// Registers a method under a new name. Thread-safe.
void register_method(MethodFamily family);

}  // namespace starling::method

namespace starling {
using method::make_method;
using method::method_families;
using method::MethodFamily;
using method::register_method;
}  // namespace starling
