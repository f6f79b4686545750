#pragma once

#include <pybind11/pybind11.h>

namespace starling::python {

/// Binds objectives of simulated nodes: by name, from a program's arrays, or from a Python function.
void bind_objective(pybind11::module_& module);

}  // namespace starling::python
