#pragma once

#include <memory>
#include <pybind11/pybind11.h>

#include "starling/fabric/fabric.h"

namespace starling::python {

/// A fabric over two process groups of torch.distributed; the caller owns the result.
std::shared_ptr<Fabric>* adopt_group(const pybind11::object& up, const pybind11::object& down,
                                     const pybind11::object& store);

}  // namespace starling::python
