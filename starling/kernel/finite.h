#pragma once

#include <cstddef>

#include "starling/base/buffer.h"

namespace starling::kernel {

/// Whether no element is infinite or not a number, for every dtype (integers are always finite).
bool all_finite(DType dtype, const void* data, std::size_t count);
inline bool all_finite(ConstBuffer x) {
  return all_finite(x.dtype, x.host_data(), x.count);
}

}  // namespace starling::kernel
