#include "module.h"
#include "starling/version.h"

// The module starling._core: everything that needs no torch. Arrays are passed as addresses, so that numpy's
// and torch's arrays, of any version, are handled alike.
PYBIND11_MODULE(_core, module) {
  module.attr("__version__") = STARLING_VERSION;
  starling::python::bind_errors(module);
  starling::python::bind_topology(module);
  starling::python::bind_flock(module);
  starling::python::bind_window(module);
  starling::python::bind_launch(module);
  starling::python::bind_analysis(module);
  starling::python::bind_simulate(module);
  starling::python::bind_data(module);
}
