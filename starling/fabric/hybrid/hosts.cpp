#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <sys/stat.h>

#include "starling/base/error.h"
#include "starling/base/sha256.h"
#include "starling/fabric/hybrid/hybrid.h"
#include "starling/fabric/local/local.h"

namespace starling {
namespace {

using HostClock = std::chrono::steady_clock;

// Nothing when it died before it said anything.
std::optional<Arrival> first_from(Fabric& fabric, Rank source, Deadline deadline) {
  for (;;) {
    const std::uint32_t ticket = fabric.ticket();
    const bool was_alive = fabric.alive(source);
    if (auto arrival = fabric.poll(source)) return arrival;
    if (!was_alive) return std::nullopt;
    if (HostClock::now() > deadline)
      throw Error(fmt::format("rank {} did not say which host it is on in time", source));
    fabric.sleep(ticket, {&source, 1}, deadline);
  }
}

// "" for ranks that died before they said it: they are nobody's neighbours.
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
    const auto arrival = first_from(fabric, from, deadline);
    const auto said = arrival ? arrival->bytes() : std::span<const std::byte>();
    hosts.emplace_back(reinterpret_cast<const char*>(said.data()), said.size());
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

/// The network's, with a hybrid made around what it makes.
class HybridDoor final : public Door {
 public:
  HybridDoor(Door& network, std::string job, std::chrono::milliseconds timeout, std::string host)
      : network_(network), job_(std::move(job)), timeout_(timeout), host_(std::move(host)) {}

  Opening call() override { return network_.call(); }
  std::shared_ptr<Fabric> open(const Opening& opening, Rank place, Rank members) override {
    return finish_hybrid(job_, timeout_, host_)(network_.open(opening, place, members));
  }
  bool all_are_in(const Opening& opening) override { return network_.all_are_in(opening); }
  void close(const Opening& opening, bool good) override { network_.close(opening, good); }
  std::uint64_t number() const override { return network_.number(); }
  Rank newcomers() const override { return network_.newcomers(); }

 private:
  Door& network_;
  std::string job_;
  std::chrono::milliseconds timeout_;
  std::string host_;
};

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
  const bool anew = network->door() != nullptr && network->door()->number() != 0;
  const auto limit = anew ? opening_limit(timeout) : timeout;
  const auto hosts = everybodys_host(*network, mine, HostClock::now() + limit);
  std::vector<Rank> same;
  Rank index = 0;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    if (hosts[r] != mine) continue;
    if (static_cast<Rank>(r) == network->rank()) index = static_cast<Rank>(same.size());
    same.push_back(static_cast<Rank>(r));
  }
  LocalOptions options;
  options.join_timeout = limit;
  options.exited = [&network, &same](Rank r) { return !network->alive(same[static_cast<std::size_t>(r)]); };
  Door* outside = network->door();
  // Names of sockets are for all to see, and the job's word is the token of its store.
  const std::string both = fmt::format("{}@{}@{}", job, anew ? outside->number() : 0, mine);
  const std::string name =
      sha256({reinterpret_cast<const std::uint8_t*>(both.data()), both.size()}).substr(0, 32);
  auto local = join_local(name, index, static_cast<Rank>(same.size()), options);
  std::unique_ptr<Door> door;
  if (outside != nullptr) door = std::make_unique<HybridDoor>(*outside, job, timeout, mine);
  return make_hybrid(std::move(local), std::move(network), same, equal_shares(hosts), std::move(door));
}

FinishFabric finish_hybrid(const std::string& job, std::chrono::milliseconds timeout,
                           const std::string& host) {
  return [=](std::shared_ptr<Fabric> fabric) {
    return join_hybrid(std::dynamic_pointer_cast<NetworkFabric>(std::move(fabric)), job, timeout, host);
  };
}

}  // namespace starling
