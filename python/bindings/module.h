#pragma once

#include <cstdint>
#include <pybind11/pybind11.h>

// The parts of the module starling._core, one file each.
namespace starling::python {

void bind_errors(pybind11::module_& module);
void bind_topology(pybind11::module_& module);
void bind_flock(pybind11::module_& module);
void bind_window(pybind11::module_& module);
void bind_launch(pybind11::module_& module);
void bind_analysis(pybind11::module_& module);
void bind_simulate(pybind11::module_& module);
void bind_data(pybind11::module_& module);

/// An address as an integer, as Python passes memory.
using Address = std::uintptr_t;

inline void* pointer(Address address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): see above
}

}  // namespace starling::python
