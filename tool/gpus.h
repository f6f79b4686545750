#pragma once

#include <string>
#include <utility>
#include <vector>

#include "starling/base/json.h"
#include "starling/kernel/device.h"

namespace starling::tool {

/// The GPUs of this machine, for `starling info`.
struct Gpus {
  std::string version;  // of driver and library; "" if there is no GPU
  std::string problem;  // why there is no GPU
  std::vector<kernel::DeviceInfo> devices;
};
/// Loads CUDA's driver; processes forked afterwards cannot use it.
Gpus look_for_gpus();

/// Table rows of name and value.
std::vector<std::pair<std::string, std::string>> rows_of(const Gpus& gpus);
/// Writes the members `cuda`, `no_gpu_because` and `gpus` of the current JSON object.
void write_gpus(JsonWriter& json, const Gpus& gpus);

}  // namespace starling::tool
