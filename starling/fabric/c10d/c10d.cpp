#include "starling/fabric/c10d/c10d.h"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <numeric>
#include <signal.h>
#include <sys/resource.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

// Gloo's headers come with Debian's libgloo-dev, not with torch's wheels.
#if __has_include(<gloo/transport/device.h>) && __has_include(<torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>)
#define STARLING_HAS_GLOO 1
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

#include "starling/base/error.h"
#include "starling/fabric/c10d/door.h"
#include "starling/fabric/c10d/meeting.h"
#include "starling/fabric/c10d/token_store.h"
#include "starling/fabric/c10d/wire.h"
#include "starling/fabric/network/network.h"
#include "starling/fabric/network/store/address.h"
#include "starling/fabric/network/store/watch.h"
#include "starling/record/log.h"

namespace starling {
namespace {

using c10d_engine::GroupPtr;
using c10d_engine::Groups;
using c10d_engine::StorePtr;

// torchrun's: its agent hosts the store; torch's older launchers leave it to rank 0.
StorePtr meet_as_torchrun(const FabricRequest& request, bool may_host) {
  const char* host = std::getenv("MASTER_ADDR");
  const char* port = std::getenv("MASTER_PORT");
  if (host == nullptr || port == nullptr)
    throw InvalidArgument(
        "c10d needs to know where ranks meet: STARLING_STORE=address:port, or torchrun's MASTER_ADDR and "
        "MASTER_PORT");
  const std::string meeting = fmt::format("{}:{}", host, port);
  const network::StoreAddress address = network::read_store_address(meeting);
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  ::c10d::TCPStoreOptions options;
  options.port = address.port;
  options.isServer = may_host && request.rank == 0 && (agent == nullptr || std::string(agent) != "True");
  options.waitWorkers = false;
  options.timeout = request.timeout;
  try {
    return c10::make_intrusive<::c10d::TCPStore>(address.host, options);
  } catch (const std::exception& error) {
    throw Error(
        fmt::format("rank {} does not reach the store at {}: {}", request.rank, meeting, error.what()));
  }
}

// A launcher of ours hosts a store that asks for the job's token, which is not to be seen in its keys.
StorePtr meet(const FabricRequest& request, bool may_host) {
  using ::c10d::PrefixStore;
  StorePtr store;
  if (request.meeting.empty())
    store = c10::make_intrusive<PrefixStore>("starling/" + request.job, meet_as_torchrun(request, may_host));
  else
    store = c10::make_intrusive<PrefixStore>(
        "starling", c10d_engine::make_token_store(request.meeting, request.job, request.timeout));
  store->setTimeout(request.timeout);
  return store;
}

#ifdef STARLING_HAS_GLOO
Groups make_gloo(const StorePtr& store, const FabricRequest& request) {
  using Gloo = ::c10d::ProcessGroupGloo;
  auto options = Gloo::Options::create(request.timeout);
  options->threads = 1;  // for collectives, of which there are none
  const char* named = std::getenv("GLOO_SOCKET_IFNAME");
  const std::string interface = request.interface_.empty() && named != nullptr ? named : request.interface_;
  try {
    options->devices.push_back(interface.empty() ? Gloo::createDefaultDevice()
                                                 : Gloo::createDeviceForInterface(interface));
    const auto make = [&](const std::string& name) {
      return c10::make_intrusive<Gloo>(c10::make_intrusive<::c10d::PrefixStore>(name, store), request.rank,
                                       request.size, options);
    };
    return {make("frames"), make("up"), make("down")};  // in this order, as braces have it
  } catch (const std::exception& error) {
    throw Error(
        fmt::format("Gloo{}{}: {}", interface.empty() ? "" : " on interface ", interface, error.what()));
  }
}
#else
Groups make_gloo(const StorePtr&, const FabricRequest&) {
  throw Error(
      "Starling was built where Gloo's headers are missing (Debian: libgloo-dev) and cannot make a Gloo "
      "group; "
      "make one in Python and adopt it: starling.torch.init(process_group=group)");
}
#endif

// Gloo writes to connections whose other end may have died, which by default ends the process. Who wants it
// otherwise has set a handler.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

}  // namespace

std::shared_ptr<NetworkFabric> adopt_c10d(Groups groups, StorePtr store) {
  ignore_broken_pipes();
  const Rank size = groups.frames->getSize();
  std::vector<Rank> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return make_network_fabric(c10d_engine::make_wire(std::move(groups), size, all),
                             c10d_engine::make_ledger(std::move(store)));
}

namespace {

// Gloo waits for connections that it cannot open, as if they were late.
void check_open_files(Rank ranks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  std::error_code ignored;
  const std::filesystem::directory_iterator open("/proc/self/fd", ignored);
  const auto in_use = static_cast<rlim_t>(std::distance(begin(open), end(open)));
  constexpr rlim_t kGroups = 3, kOther = 8;  // of Gloo; listeners, pollers, the store
  const rlim_t needed = in_use + kGroups * static_cast<rlim_t>(ranks - 1) + kOther;
  if (limit.rlim_cur < needed)
    throw Error(
        fmt::format("the limit on open files (RLIMIT_NOFILE, ulimit -n) is {}, and {} ranks over c10d need "
                    "{} in each process: raise it",
                    limit.rlim_cur, ranks, needed));
}

// Ranks that leave and join anew must not find what they said before in the store.
int joined_before(const FabricRequest& request) {
  static std::mutex mutex;
  static std::map<std::string, int> times;
  const std::lock_guard lock(mutex);
  return times[fmt::format("{} {} {}", request.meeting, request.job, request.rank)]++;
}

// Says at once when the store is gone: nobody asks it anything before the next death.
std::shared_ptr<void> watch_store(const FabricRequest& request) {
  if (request.meeting.empty()) return nullptr;  // torch's own
  return std::make_shared<network::StoreWatch>(
      std::make_shared<network::StoreClient>(request.meeting, request.job, request.timeout),
      [rank = request.rank](const std::string& why) {
        log(LogLevel::normal,
            fmt::format("rank {}: the store where ranks meet is gone ({}). Ranks go on, but nobody can enter "
                        "the job any more, and after the next death they cannot agree on who is left",
                        rank, why));
      });
}

// A connection of its own: what times out here may leave one in disorder.
std::shared_ptr<NetworkFabric> make_fabric_in(const std::string& part, const FabricRequest& request) {
  const StorePtr store = c10::make_intrusive<::c10d::PrefixStore>(part, meet(request, false));
  return adopt_c10d(make_gloo(store, request), store);
}

}  // namespace

std::shared_ptr<Fabric> join_c10d(const FabricRequest& request) {
  read_log_level();
  check_open_files(request.size);
  const StorePtr job = meet(request, true);
  StorePtr store = job;
  if (const int times = joined_before(request); times > 0)
    store = c10::make_intrusive<::c10d::PrefixStore>(fmt::format("join {}", times), job);
  c10d_engine::Met met = c10d_engine::meet_all(
      store, job, request,
      [request](const StorePtr& part, Rank rank, Rank size, std::chrono::milliseconds limit) {
        FabricRequest attempt = request;
        attempt.rank = rank;
        attempt.size = size;
        attempt.timeout = limit;
        return make_gloo(part, attempt);
      });
  ignore_broken_pipes();
  const auto fabric =
      make_network_fabric(c10d_engine::make_wire(std::move(met.groups), request.size, met.members),
                          c10d_engine::make_ledger(store, watch_store(request)));
  fabric->set_door(c10d_engine::make_door(job, request, make_fabric_in));
  return fabric;
}

std::shared_ptr<Fabric> enter_c10d(const FabricRequest& request, const FinishFabric& finish) {
  read_log_level();
  return c10d_engine::enter(meet(request, false), request, make_fabric_in, finish);
}

}  // namespace starling
