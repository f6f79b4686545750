#include "tool/machine.h"

#include <fmt/format.h>
#include <fstream>

#include "starling/launch/cpus.h"

namespace starling::tool {

std::string machine_text() {
  std::ifstream info("/proc/cpuinfo");
  std::string model;
  for (std::string line; model.empty() && std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) model = line.substr(line.find(':') + 1);
  const std::size_t first = model.find_first_not_of(' ');
  model = first == std::string::npos ? "unknown processor" : model.substr(first);
  const std::size_t cores = launch::allowed_cpus().size();
  return fmt::format("{} core{}, {}", cores, cores == 1 ? "" : "s", model);
}

}  // namespace starling::tool
