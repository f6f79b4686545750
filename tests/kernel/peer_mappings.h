#pragma once

#include <fstream>
#include <string>

namespace starling::kernel {

/// How many pieces of other ranks' memory this process has mapped, on a FakeDevice.
inline int peer_mappings() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("starling-fake-device") != line.npos && line.find("r--s") != line.npos) ++found;
  return found;
}

}  // namespace starling::kernel
