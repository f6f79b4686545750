#include <cstring>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <span>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/os/host.h"
#include "starling/base/sha256.h"
#include "starling/fabric/hybrid/hybrid.h"
#include "starling/fabric/local/local.h"

namespace starling::fabric {
namespace {

using HostClock = std::chrono::steady_clock;

// The first message of a rank; empty if it died before it sent one.
std::optional<Arrival> first_message_from(Fabric& fabric, Rank source, Deadline deadline) {
  for (;;) {
    const std::uint32_t wake_count = fabric.wake_count();
    const bool was_alive = fabric.alive(source);
    if (auto arrival = fabric.poll(source)) return arrival;
    if (!was_alive) return std::nullopt;
    if (HostClock::now() > deadline)
      throw Error(fmt::format("rank {} did not report its host in time", source));
    fabric.sleep(wake_count, {&source, 1}, deadline);
  }
}

// The host of each rank; "" for ranks that died before they reported it, which share no host.
std::vector<std::string> exchange_hosts(Fabric& fabric, const std::string& mine, Deadline deadline) {
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
    const auto arrival = first_message_from(fabric, from, deadline);
    const auto name = arrival ? arrival->bytes() : std::span<const std::byte>();
    hosts.emplace_back(reinterpret_cast<const char*>(name.data()), name.size());
  }
  return hosts;
}

// The number of ranks per host if all hosts have equally many, numbered host by host; otherwise 1.
Rank common_ranks_per_host(const std::vector<std::string>& hosts) {
  std::map<std::string, Rank> counts;
  for (const std::string& host : hosts) ++counts[host];
  const Rank each = counts[hosts.front()];
  for (std::size_t r = 0; r < hosts.size(); ++r)
    if (counts[hosts[r]] != each || hosts[r] != hosts[r - r % static_cast<std::size_t>(each)]) return 1;
  return each;
}

/// The network fabric's admission, which wraps each new fabric into a hybrid one.
class HybridAdmission final : public Admission {
 public:
  HybridAdmission(Admission& network, std::string job, std::chrono::milliseconds timeout, std::string host)
      : network_(network), job_(std::move(job)), timeout_(timeout), host_(std::move(host)) {}

  AdmissionRound invite() override { return network_.invite(); }
  std::shared_ptr<Fabric> form_fabric(const AdmissionRound& round, Rank index, Rank members) override {
    return wrap_in_hybrid(job_, timeout_, host_)(network_.form_fabric(round, index, members));
  }
  bool all_joined(const AdmissionRound& round) override { return network_.all_joined(round); }
  void conclude(const AdmissionRound& round, bool accepted) override { network_.conclude(round, accepted); }
  std::uint64_t round_number() const override { return network_.round_number(); }
  Rank newcomers() const override { return network_.newcomers(); }

 private:
  Admission& network_;
  std::string job_;
  std::chrono::milliseconds timeout_;
  std::string host_;
};

}  // namespace

std::shared_ptr<Fabric> join_hybrid(std::shared_ptr<NetworkFabric> network, const std::string& job,
                                    std::chrono::milliseconds timeout, const std::string& mine) {
  Admission* network_admission = network->admission();
  const std::uint64_t round = network_admission == nullptr ? 0 : network_admission->round_number();
  const auto limit = round != 0 ? admission_time_limit(timeout) : timeout;
  const auto hosts = exchange_hosts(*network, mine, HostClock::now() + limit);
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
  // Hashed, because names of sockets are public, but `job` is the secret token of its store.
  const std::string secret = fmt::format("{}@{}@{}", job, round, mine);
  const std::string name =
      sha256({reinterpret_cast<const std::uint8_t*>(secret.data()), secret.size()}).substr(0, 32);
  auto local = join_local(name, index, static_cast<Rank>(same.size()), options);
  std::unique_ptr<Admission> admission;
  if (network_admission != nullptr)
    admission = std::make_unique<HybridAdmission>(*network_admission, job, timeout, mine);
  return make_hybrid(std::move(local), std::move(network), same, common_ranks_per_host(hosts),
                     std::move(admission));
}

WrapFabric wrap_in_hybrid(const std::string& job, std::chrono::milliseconds timeout,
                          const std::string& host) {
  return [=](std::shared_ptr<Fabric> fabric) {
    return join_hybrid(std::dynamic_pointer_cast<NetworkFabric>(std::move(fabric)), job, timeout, host);
  };
}

}  // namespace starling::fabric
