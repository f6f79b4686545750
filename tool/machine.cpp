#include "tool/machine.h"

#include <arpa/inet.h>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <ifaddrs.h>
#include <net/if.h>

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

std::vector<std::string> network_interfaces() {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    char text[INET_ADDRSTRLEN];
    if ((one->ifa_flags & IFF_UP) == 0 || one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET)
      continue;
    sockaddr_in address{};
    std::memcpy(&address, one->ifa_addr, sizeof(address));
    if (inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text)) != nullptr)
      found.push_back(fmt::format("{} {}", one->ifa_name, text));
  }
  freeifaddrs(all);
  return found;
}

}  // namespace starling::tool
