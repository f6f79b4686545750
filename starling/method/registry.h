#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/parameters.h"
#include "starling/method/method.h"

namespace starling {

/// A named family of methods: what the grammar knows, and how to make one.
struct MethodFamily {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<MethodPtr(const Parameters&)> make;
};

/// `make_method("local-sgd(tau=8)")`; throws InvalidArgument listing what is valid.
MethodPtr make_method(std::string_view text);

/// All families, in the order of the specification; a program's own come last.
std::vector<MethodFamily> method_families();

/// Adds a method of the program's own under a new name. Thread-safe.
void register_method(MethodFamily family);

}  // namespace starling
