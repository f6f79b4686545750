#include <pybind11/pybind11.h>

#include "errors.h"
#include "starling/base/nonfinite.h"
#include "starling/flock/errors.h"

namespace py = pybind11;

namespace starling::python {
namespace {

void raise(const char* name, const std::exception& error) {
  PyErr_SetString(py::module_::import("starling._core").attr(name).ptr(), error.what());
}

}  // namespace

void translate_exceptions() {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const PeerLost& error) {
      const py::object made = py::module_::import("starling._core").attr("PeerLost")(error.what());
      made.attr("peer") = error.peer();
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
    } catch (const InvalidArgument& error) {
      raise("InvalidArgument", error);
    } catch (const Mismatch& error) {
      raise("Mismatch", error);
    } catch (const TimedOut& error) {
      raise("TimedOut", error);
    } catch (const Deadlock& error) {
      raise("Deadlock", error);
    } catch (const NonFinite& error) {
      raise("NonFinite", error);
    } catch (const Excluded& error) {
      raise("Excluded", error);
    } catch (const Error& error) {
      raise("Error", error);
    }
  });
}

}  // namespace starling::python
