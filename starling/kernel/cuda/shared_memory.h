#pragma once

#include <cstddef>

#include "starling/kernel/device.h"

// Device memory that processes map through POSIX descriptors.

namespace starling::kernel::cuda {

/// New memory of the current device, mapped to be read and written by it.
Device::SharedMemory create_memory(int device, std::size_t bytes);
/// Memory of any process and device, mapped to be read by this device.
void* map_memory(int device, Descriptor descriptor, std::size_t bytes);
void unmap_memory(void* address, std::size_t bytes) noexcept;

}  // namespace starling::kernel::cuda
