#pragma once

#include <string>

#include "starling/base/buffer.h"
#include "starling/base/error.h"

// Checks of the arguments of operations in CUDA memory.

namespace starling::kernel::cuda {

/// The address of the elements in device memory, or null; throws InvalidArgument for host memory.
template <typename Void>
Void* on_device(const BasicBuffer<Void>& buffer) {
  if (buffer.memory == MemoryKind::host && buffer.address() != nullptr)
    throw InvalidArgument("an operation in CUDA memory was given elements in host memory");
  return buffer.address();
}

inline void check_parameters(DType dtype, const char* operation) {
  if (dtype != DType::float32 && dtype != DType::float64)
    throw InvalidArgument(std::string(operation) + ": parameters are float32 or float64, not " + name(dtype));
}

}  // namespace starling::kernel::cuda
