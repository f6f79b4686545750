#include <string>

#include "starling/base/error.h"
#include "starling/kernel/cuda/cuda_device.h"
#include "starling/kernel/cuda/driver.h"
#include "starling/kernel/cuda/on_device.h"
#include "starling/version.h"

// The entry points that kernel/device.cpp looks up.
extern "C" {
extern __attribute__((visibility("default"))) const char starling_device_version[];
const char starling_device_version[] = STARLING_VERSION;
}

/// Returns null with a reason if there is no device. The device lives as long as the process.
extern "C" __attribute__((visibility("default"))) starling::kernel::Device* starling_device(
    starling::kernel::DeviceContext& (*context)(), std::string* why) {
  namespace cuda = starling::kernel::cuda;
  if (!cuda::load_driver(why)) return nullptr;
  cuda::set_context_function(context);
  try {
    static auto* const device = new cuda::CudaDevice;
    return device;
  } catch (const starling::Error& error) {
    *why = error.what();
    return nullptr;
  }
}
