#pragma once

#include <pybind11/pybind11.h>

namespace starling::python {

/// What simulated nodes minimize: by name, from a program's own arrays, or a function of Python's.
void bind_objective(pybind11::module_& module);

}  // namespace starling::python
