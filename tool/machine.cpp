#include "tool/machine.h"

#include <arpa/inet.h>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <ifaddrs.h>
#include <net/if.h>

#include "starling/launch/cpus.h"

namespace starling::tool {

namespace {

// A value of the first processor; "" if Linux does not provide it.
std::string cpuinfo(const std::string& key) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t first = line.find_first_not_of(' ', line.find(':') + 1);
    return first == std::string::npos ? "" : line.substr(first);
  }
  return "";
}

}  // namespace

std::string machine_text() {
  std::string model = cpuinfo("model name");
  if (model.empty()) model = "unknown processor";
  const std::size_t cores = launch::allowed_cpus().size();
  return fmt::format("{} core{}, {}", cores, cores == 1 ? "" : "s", model);
}

std::string better_blas_core(const std::string& core) {
  if (core != "Prescott") return "";
  const std::string flags = " " + cpuinfo("flags") + " ";
  for (const auto& [flag, better] :
       {std::pair{"avx512_bf16", "Cooperlake"}, {"avx512vl", "SkylakeX"}, {"avx2", "Haswell"}})
    if (flags.find(fmt::format(" {} ", flag)) != std::string::npos) return better;
  return "";
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
