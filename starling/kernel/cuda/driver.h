#pragma once

#include <cstddef>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <string>

namespace starling::kernel::cuda {

/// The CUDA driver functions used here. libcuda is loaded at run time, so that this library also loads on
/// machines without a driver.
struct Driver {
#define STARLING_DRIVER_FUNCTIONS(F)        \
  F(cuInit)                                 \
  F(cuGetErrorName)                         \
  F(cuGetErrorString)                       \
  F(cuDeviceGet)                            \
  F(cuDeviceGetName)                        \
  F(cuDeviceTotalMem)                       \
  F(cuDevicePrimaryCtxRetain)               \
  F(cuDevicePrimaryCtxRelease)              \
  F(cuCtxGetCurrent)                        \
  F(cuCtxSetCurrent)                        \
  F(cuMemGetInfo)                           \
  F(cuMemGetAllocationGranularity)          \
  F(cuMemCreate)                            \
  F(cuMemRelease)                           \
  F(cuMemExportToShareableHandle)           \
  F(cuMemImportFromShareableHandle)         \
  F(cuMemGetAllocationPropertiesFromHandle) \
  F(cuMemAddressReserve)                    \
  F(cuMemAddressFree)                       \
  F(cuMemMap)                               \
  F(cuMemUnmap)                             \
  F(cuMemSetAccess)                         \
  F(cuMemHostRegister)                      \
  F(cuMemHostUnregister)                    \
  F(cuMemHostGetDevicePointer)              \
  F(cuStreamWaitValue32)                    \
  F(cuStreamWriteValue32)
#define STARLING_DRIVER_POINTER(name) decltype(&::name) name##_ = nullptr;
  STARLING_DRIVER_FUNCTIONS(STARLING_DRIVER_POINTER)
#undef STARLING_DRIVER_POINTER
};

/// Loads the driver; returns false with a reason if that fails. Tests load another library; null means the
/// program itself.
bool load_driver(std::string* why, const char* library = "libcuda.so.1");
/// Valid after load_driver().
const Driver& driver();

/// Throw Error with CUDA's name for the error unless `result` is success.
void check(CUresult result, const char* call);
void check(cudaError_t result, const char* call);
/// Throws Error with the bytes needed and the bytes free on the current device.
[[noreturn]] void throw_out_of_memory(std::size_t bytes);

}  // namespace starling::kernel::cuda
