#pragma once

#include <pybind11/pybind11.h>

#include "starling/base/error.h"

namespace starling::python {

/// Calls a Python callback from a thread without the interpreter lock, and returns its result. An
/// InvalidArgument that passed through Python becomes InvalidArgument again, and so does any ValueError.
template <typename Function>
auto ask_python(const Function& ask) {
  const pybind11::gil_scoped_acquire acquire;
  try {
    return ask();
  } catch (const pybind11::error_already_set& error) {
    if (!error.matches(PyExc_ValueError)) throw;
    throw InvalidArgument(pybind11::str(error.value()).cast<std::string>());
  }
}

}  // namespace starling::python
