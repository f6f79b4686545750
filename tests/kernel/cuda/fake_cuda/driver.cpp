#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cuda.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "machine.h"

using fake_cuda::Machine;

namespace {

thread_local CUcontext current = nullptr;

// Returns the error that the test has set for this function.
#define FAKE_CUDA_FAILURE()                                                     \
  if (const int error = Machine::instance().take_failure(__func__); error != 0) \
  return static_cast<CUresult>(error)

CUcontext context_of(int device) {
  static CUctx_st contexts[fake_cuda::kDevices] = {{0}, {1}};
  return &contexts[device];
}
bool is_device(int number) {
  return number >= 0 && number < fake_cuda::kDevices;
}
void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

CUmemGenericAllocationHandle add_handle(std::shared_ptr<fake_cuda::Allocation> allocation) {
  Machine& machine = Machine::instance();
  const CUmemGenericAllocationHandle handle = machine.next_handle++;
  machine.allocations[handle] = std::move(allocation);
  return handle;
}

// The flag at this address, or null if it is not in registered memory.
std::atomic<std::uint32_t>* flag_at(CUdeviceptr address) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  for (const auto& [begin, bytes] : machine.registered)
    if (begin <= address && address + sizeof(std::uint32_t) <= begin + bytes)
      return static_cast<std::atomic<std::uint32_t>*>(pointer(address));
  return nullptr;
}

}  // namespace

int fake_cuda::current_device() {
  return current == nullptr ? -1 : current->device;
}

CUresult cuInit(unsigned) {
  FAKE_CUDA_FAILURE();
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  switch (error) {
    case CUDA_ERROR_NO_DEVICE:
      *text = "CUDA_ERROR_NO_DEVICE";
      return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE:
      *text = "CUDA_ERROR_INVALID_VALUE";
      return CUDA_SUCCESS;
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
      *text = "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED";
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "a fake error";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE_CUDA_FAILURE();
  *device = ordinal;
  return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  std::snprintf(name, static_cast<std::size_t>(size), "Fake GPU %d", device);
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = fake_cuda::kMemory;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  FAKE_CUDA_FAILURE();
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *total = fake_cuda::kMemory;
  *free = fake_cuda::kMemory - Machine::instance().used[current->device];
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(std::size_t* unit, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *unit = fake_cuda::kUnit;
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size,
                     const CUmemAllocationProp* properties, unsigned long long) {
  FAKE_CUDA_FAILURE();
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  const int device = properties->location.id;
  if (!is_device(device) || size % fake_cuda::kUnit != 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > fake_cuda::kMemory - machine.used[device]) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = memfd_create("fake-cuda", MFD_CLOEXEC);
  struct stat info {};
  if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0 || fstat(file, &info) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  auto allocation = std::make_shared<fake_cuda::Allocation>();
  allocation->file = file;
  allocation->size = size;
  allocation->device = device;
  machine.used[device] += size;
  machine.files[info.st_ino] = allocation;
  *handle = add_handle(std::move(allocation));
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  return machine.allocations.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType, unsigned long long) {
  FAKE_CUDA_FAILURE();
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  *static_cast<int*>(shareable) = dup(machine.allocations.at(handle)->file);
  return CUDA_SUCCESS;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType) {
  FAKE_CUDA_FAILURE();
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  struct stat info {};
  if (fstat(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)), &info) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const auto found = machine.files.find(info.st_ino);
  if (found == machine.files.end() || found->second.expired()) return CUDA_ERROR_INVALID_VALUE;
  *handle = add_handle(found->second.lock());
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  properties->location = {CU_MEM_LOCATION_TYPE_DEVICE, machine.allocations.at(handle)->device};
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t size, std::size_t, CUdeviceptr,
                             unsigned long long) {
  FAKE_CUDA_FAILURE();
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  void* memory = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  machine.ranges[*address] = {size, nullptr};
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, std::size_t size) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  const auto found = machine.ranges.find(address);
  if (found == machine.ranges.end() || found->second.size != size || found->second.mapped != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  machine.ranges.erase(found);
  munmap(pointer(address), size);
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr address, std::size_t size, std::size_t, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  FAKE_CUDA_FAILURE();
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  fake_cuda::Range& range = machine.ranges.at(address);
  const std::shared_ptr<fake_cuda::Allocation>& allocation = machine.allocations.at(handle);
  if (range.mapped != nullptr || range.size != size || allocation->size != size)
    return CUDA_ERROR_INVALID_VALUE;
  mmap(pointer(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, allocation->file, 0);
  range.mapped = allocation;
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, std::size_t size) {
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  const auto found = machine.ranges.find(address);
  if (found == machine.ranges.end() || found->second.size != size || found->second.mapped == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  found->second.mapped = nullptr;
  mmap(pointer(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* access, std::size_t) {
  FAKE_CUDA_FAILURE();
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  const fake_cuda::Range& range = machine.ranges.at(address);
  if (range.mapped == nullptr || !is_device(access->location.id)) return CUDA_ERROR_INVALID_VALUE;
  if (range.mapped->device != access->location.id && !machine.peer_access) return CUDA_ERROR_INVALID_VALUE;
  mprotect(pointer(address), size,
           access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_READ | PROT_WRITE);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void* memory, std::size_t bytes, unsigned flags) {
  FAKE_CUDA_FAILURE();
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)) return CUDA_ERROR_INVALID_VALUE;
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  const auto begin = reinterpret_cast<CUdeviceptr>(memory);
  for (const auto& [other, size] : machine.registered)
    if (begin < other + size && other < begin + bytes) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  machine.registered[begin] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void* memory) {
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Machine& machine = Machine::instance();
  const std::lock_guard lock(machine.mutex);
  return machine.registered.erase(reinterpret_cast<CUdeviceptr>(memory)) == 1
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* memory, unsigned) {
  FAKE_CUDA_FAILURE();
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitValue32(CUstream handle, CUdeviceptr address, unsigned value, unsigned) {
  FAKE_CUDA_FAILURE();
  Machine& machine = Machine::instance();
  CUstream_st* stream = machine.stream(handle);
  const std::atomic<std::uint32_t>* flag = flag_at(address);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flag == nullptr) return CUDA_ERROR_INVALID_VALUE;
  machine.enqueue(stream, [flag, value] { return static_cast<std::int32_t>(flag->load() - value) >= 0; });
  return CUDA_SUCCESS;
}
CUresult cuStreamWriteValue32(CUstream handle, CUdeviceptr address, unsigned value, unsigned) {
  FAKE_CUDA_FAILURE();
  Machine& machine = Machine::instance();
  CUstream_st* stream = machine.stream(handle);
  std::atomic<std::uint32_t>* flag = flag_at(address);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flag == nullptr) return CUDA_ERROR_INVALID_VALUE;
  machine.enqueue(stream, [flag, value] {
    flag->store(value);
    return true;
  });
  return CUDA_SUCCESS;
}
