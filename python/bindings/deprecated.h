#pragma once

#include <pybind11/pybind11.h>
#include <string>

namespace starling::python {

/// Raises Python's DeprecationWarning at the caller's line for an older spelling that still works.
inline void warn_deprecated(const std::string& old, const std::string& now) {
  const std::string text = old + " is the older spelling of " + now;
  if (PyErr_WarnEx(PyExc_DeprecationWarning, text.c_str(), 1) != 0) throw pybind11::error_already_set();
}

}  // namespace starling::python
