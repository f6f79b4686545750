#include "starling/kernel/cuda/shared_memory.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "starling/base/error.h"
#include "starling/kernel/cuda/driver.h"

namespace starling::kernel::cuda {
namespace {

/// Owns a handle of device memory. Mappings keep the memory alive without the handle.
class Memory {
 public:
  explicit Memory(CUmemGenericAllocationHandle handle) : handle_(handle) {}
  ~Memory() { driver().cuMemRelease_(handle_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  CUmemGenericAllocationHandle handle() const { return handle_; }

 private:
  CUmemGenericAllocationHandle handle_;
};

/// A mapping of device memory, undone in the end unless it is kept.
class Mapping {
 public:
  Mapping(const Memory& memory, std::size_t bytes, int device, CUmemAccess_flags access) : bytes_(bytes) {
    check(driver().cuMemAddressReserve_(&address_, bytes, 0, 0, 0), "cuMemAddressReserve");
    try {
      check(driver().cuMemMap_(address_, bytes, 0, memory.handle(), 0), "cuMemMap");
      mapped_ = true;
      const CUmemAccessDesc description{{CU_MEM_LOCATION_TYPE_DEVICE, device}, access};
      check(driver().cuMemSetAccess_(address_, bytes, &description, 1), "cuMemSetAccess");
    } catch (...) {
      undo();
      throw;
    }
  }
  ~Mapping() {
    if (address_ != 0) undo();
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void* keep() { return reinterpret_cast<void*>(std::exchange(address_, 0)); }

 private:
  void undo() {
    if (mapped_) driver().cuMemUnmap_(address_, bytes_);
    driver().cuMemAddressFree_(address_, bytes_);
  }

  std::size_t bytes_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

}  // namespace

Device::SharedMemory create_memory(int device, std::size_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t unit = 0;
  check(driver().cuMemGetAllocationGranularity_(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity");
  const std::size_t size = ((std::max<std::size_t>(bytes, 1) - 1) / unit + 1) * unit;
  if (size < bytes) throw_out_of_memory(bytes);  // overflow
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = driver().cuMemCreate_(&handle, size, &properties, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw_out_of_memory(size);
  check(result, "cuMemCreate");
  const Memory memory(handle);
  Mapping mapping(memory, size, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  int descriptor = -1;
  check(driver().cuMemExportToShareableHandle_(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                               0),
        "cuMemExportToShareableHandle");
  return {mapping.keep(), size, Descriptor(descriptor)};
}

void* map_memory(int device, Descriptor descriptor, std::size_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  auto* const number = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor.get()));
  check(driver().cuMemImportFromShareableHandle_(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cuMemImportFromShareableHandle");
  const Memory memory(handle);
  CUmemAllocationProp properties{};
  check(driver().cuMemGetAllocationPropertiesFromHandle_(&properties, handle),
        "cuMemGetAllocationPropertiesFromHandle");
  const int owner = properties.location.id;
  int can = 1;
  if (owner != device) check(cudaDeviceCanAccessPeer(&can, device, owner), "cudaDeviceCanAccessPeer");
  if (can == 0)
    throw Error("CUDA device " + std::to_string(device) + " cannot read the memory of device " +
                std::to_string(owner) + ": there is no peer access between them");
  return Mapping(memory, bytes, device, CU_MEM_ACCESS_FLAGS_PROT_READ).keep();
}

void unmap_memory(void* address, std::size_t bytes) noexcept {
  if (address == nullptr) return;
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  driver().cuMemUnmap_(at, bytes);
  driver().cuMemAddressFree_(at, bytes);
}

}  // namespace starling::kernel::cuda
