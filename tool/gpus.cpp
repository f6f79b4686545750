#include "tool/gpus.h"

#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/report/number_text.h"

namespace starling::tool {

Gpus look_for_gpus() {
  Gpus gpus;
  gpus.problem = kernel::why_no_device();
  if (!gpus.problem.empty()) return gpus;
  try {
    gpus.devices = kernel::device().devices();
    gpus.version = kernel::device().version();
  } catch (const Error& error) {
    gpus = {"", error.what(), {}};
  }
  return gpus;
}

std::vector<std::pair<std::string, std::string>> rows_of(const Gpus& gpus) {
  if (!gpus.problem.empty()) return {{"gpu", "none: " + gpus.problem}};
  std::vector<std::pair<std::string, std::string>> rows = {{"cuda", gpus.version}};
  for (const kernel::DeviceInfo& device : gpus.devices)
    rows.emplace_back(fmt::format("gpu {}", rows.size() - 1),
                      fmt::format("{}, {}, {} of it free; maps the memory of {}", device.name,
                                  human_bytes(static_cast<double>(device.bytes)),
                                  human_bytes(static_cast<double>(device.bytes_free)),
                                  device.peers.empty() ? "no other GPU" : "GPU " + device.peers));
  return rows;
}

void write_gpus(JsonWriter& json, const Gpus& gpus) {
  json.key("cuda");
  gpus.problem.empty() ? json.value(gpus.version) : json.null();
  json.key("no_gpu_because");
  gpus.problem.empty() ? json.null() : json.value(gpus.problem);
  json.key("gpus").begin_array();
  for (const kernel::DeviceInfo& device : gpus.devices)
    json.begin_object(JsonWriter::Layout::one_line)
        .member("name", device.name)
        .member("memory", device.bytes)
        .member("memory_free", device.bytes_free)
        .member("peers", device.peers)
        .end_object();
  json.end_array();
}

}  // namespace starling::tool
