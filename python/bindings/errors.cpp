#include "errors.h"

#include <pybind11/pybind11.h>

#include "module.h"
#include "starling/flock/errors.h"

namespace py = pybind11;

namespace starling::python {
namespace {

PyObject* make_class(py::module_& module, const char* name, py::tuple bases, const char* text) {
  const std::string full = std::string("starling.") + name;
  PyObject* made = PyErr_NewExceptionWithDoc(full.c_str(), text, bases.ptr(), nullptr);
  if (made == nullptr) throw py::error_already_set();
  module.add_object(name, py::handle(made));
  return made;
}

}  // namespace

// BlueFog's users catch ValueError for bad arguments and RuntimeError for a flock that cannot continue.
void bind_errors(py::module_& module) {
  const py::handle runtime(PyExc_RuntimeError);
  const py::handle value(PyExc_ValueError);
  const py::handle error =
      make_class(module, "Error", py::make_tuple(runtime), "Everything that Starling raises.");
  make_class(module, "InvalidArgument", py::make_tuple(error, value),
             "An invalid argument; the message says what is valid.");
  make_class(
      module, "Mismatch", py::make_tuple(error, value),
      "Ranks disagree about an operation: shape, dtype, schedule, root. All that are involved get one.");
  make_class(module, "PeerLost", py::make_tuple(error),
             "A rank that an operation needed has died or left: `peer` is its rank.");
  make_class(module, "TimedOut", py::make_tuple(error), "A wait has taken longer than the flock's timeout.");
  make_class(module, "Deadlock", py::make_tuple(error),
             "Blocking operations in opposite orders: the ranks wait for each other in a cycle.");
  make_class(module, "NonFinite", py::make_tuple(error),
             "A gradient or a parameter of this rank is infinite or not a number.");
  make_class(module, "Excluded", py::make_tuple(error),
             "This rank is no longer part of the job: the others have continued without it, or may have.");
  translate_exceptions();
}

}  // namespace starling::python
