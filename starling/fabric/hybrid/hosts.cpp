#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <sys/stat.h>

#include "starling/base/error.h"
#include "starling/base/sha256.h"
#include "starling/fabric/hybrid/hybrid.h"
#include "starling/fabric/local/local.h"

namespace starling {
namespace {

using HostClock = std::chrono::steady_clock;

Arrival first_from(Fabric& fabric, Rank source, Deadline deadline) {
  for (;;) {
    const std::uint32_t ticket = fabric.ticket();
    const bool was_alive = fabric.alive(source);
    if (auto arrival = fabric.poll(source)) return std::move(*arrival);
    if (!was_alive || HostClock::now() > deadline)
      throw Error(fmt::format("rank {} did not say which host it is on{}", source,
                              was_alive ? " in time" : " before it was lost"));
    fabric.sleep(ticket, {&source, 1}, deadline);
  }
}

std::vector<std::string> everybodys_host(Fabric& fabric, const std::string& mine, Deadline deadline) {
  const Outgoing message = fabric.reserve(mine.size());
  std::memcpy(message.bytes().data(), mine.data(), mine.size());
  for (Rank to = 0; to < fabric.size(); ++to)
    if (to != fabric.rank()) fabric.post(message, {}, to);
  std::vector<std::string> hosts;
  for (Rank from = 0; from < fabric.size(); ++from) {
    if (from == fabric.rank()) {
      hosts.push_back(mine);
      continue;
    }
    const Arrival arrival = first_from(fabric, from, deadline);
    hosts.emplace_back(reinterpret_cast<const char*>(arrival.bytes().data()), arrival.bytes().size());
  }
  return hosts;
}

// 1 unless every host has as many ranks as the first, one after another.
Rank equal_shares(const std::vector<std::string>& hosts) {
  std::map<std::string, Rank> counts;
  for (const std::string& host : hosts) ++counts[host];
  const Rank each = counts[hosts.front()];
  for (std::size_t r = 0; r < hosts.size(); ++r)
    if (counts[hosts[r]] != each || hosts[r] != hosts[r - r % static_cast<std::size_t>(each)]) return 1;
  return each;
}

}  // namespace

// The kernel that runs, and the network namespace in it, in which processes meet.
std::string host_identity() {
  if (const char* pretended = std::getenv("STARLING_HOST"); pretended != nullptr && *pretended != '\0')
    return pretended;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  struct stat network {};
  if (boot.empty() || stat("/proc/self/ns/net", &network) != 0)
    throw Error("cannot tell this host from others: /proc is not there; STARLING_HOST=NAME says which it is");
  return fmt::format("{}:{}", boot, network.st_ino);
}

std::shared_ptr<Fabric> join_hybrid(std::shared_ptr<NetworkFabric> network, const std::string& job,
                                    std::chrono::milliseconds timeout, const std::string& mine) {
  const auto hosts = everybodys_host(*network, mine, HostClock::now() + timeout);
  std::vector<Rank> same;
  Rank index = 0;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    if (hosts[r] != mine) continue;
    if (static_cast<Rank>(r) == network->rank()) index = static_cast<Rank>(same.size());
    same.push_back(static_cast<Rank>(r));
  }
  LocalOptions options;
  options.join_timeout = timeout;
  // Names of sockets are for all to see, and the job's word is the token of its store.
  const std::string both = job + "@" + mine;
  const std::string name =
      sha256({reinterpret_cast<const std::uint8_t*>(both.data()), both.size()}).substr(0, 32);
  auto local = join_local(name, index, static_cast<Rank>(same.size()), options);
  return make_hybrid(std::move(local), std::move(network), same, equal_shares(hosts));
}

}  // namespace starling
