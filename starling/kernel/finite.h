#pragma once

#include <cstddef>

#include "starling/base/dtype.h"

namespace starling {

/// Whether no element is infinite or not a number, for every dtype (integers always are finite).
bool all_finite(DType dtype, const void* data, std::size_t count);

}  // namespace starling
