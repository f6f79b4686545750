#pragma once

#include <string>
#include <utility>
#include <vector>

#include "starling/base/json.h"
#include "starling/kernel/device.h"

namespace starling::tool {

/// The GPUs of this machine, for `starling info`.
struct Gpus {
  std::string version;  // of driver and library; "" where there is no GPU
  std::string problem;  // why there is no GPU, then
  std::vector<kernel::DeviceInfo> devices;
};
/// Loads CUDA's driver: a process that is forked afterwards cannot use it.
Gpus look_for_gpus();

/// Rows of a table: what, and what is said of it.
std::vector<std::pair<std::string, std::string>> rows_of(const Gpus& gpus);
/// The members `cuda`, `no_gpu_because` and `gpus` of the object that is being written.
void write_gpus(JsonWriter& json, const Gpus& gpus);

}  // namespace starling::tool
