#include "starling/base/os/host.h"

#include <fmt/format.h>
#include <fstream>
#include <sys/stat.h>

#include "starling/base/environment.h"
#include "starling/base/error.h"

namespace starling {

// The kernel's boot id and the network namespace, within which abstract sockets are visible.
std::string host_identity() {
  if (const std::string configured = environment::kHost.text(); !configured.empty()) return configured;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  struct stat network {};
  if (boot.empty() || stat("/proc/self/ns/net", &network) != 0)
    throw Error(
        "cannot identify this host because /proc is not mounted; set STARLING_HOST to a name that is unique "
        "per host");
  return fmt::format("{}:{}", boot, network.st_ino);
}

}  // namespace starling
