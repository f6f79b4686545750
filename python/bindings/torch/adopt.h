#pragma once

#include <memory>
#include <pybind11/pybind11.h>
#include <vector>

#include "starling/fabric/fabric.h"

namespace starling::python {

/// Makes a fabric over three process groups of torch.distributed; the caller owns the result.
std::shared_ptr<Fabric>* adopt_groups(const std::vector<pybind11::object>& three,
                                      const pybind11::object& store);

}  // namespace starling::python
