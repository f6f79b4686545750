#pragma once

#include <cstddef>

#include "starling/kernel/device.h"

// Device memory that processes share through POSIX file descriptors.

namespace starling::kernel::cuda {

/// Allocates memory on the current device, which can read and write it.
Device::SharedMemory create_memory(int device, std::size_t bytes);
/// Maps the memory of any process and device for reading by this device.
void* map_memory(int device, Descriptor descriptor, std::size_t bytes);
void unmap_memory(void* address, std::size_t bytes) noexcept;

}  // namespace starling::kernel::cuda
