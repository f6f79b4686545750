#include "starling/fabric/c10d/c10d.h"

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

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/fabric/c10d/c10d_transport.h"
#include "starling/fabric/c10d/group_formation.h"
#include "starling/fabric/c10d/store.h"
#include "starling/fabric/c10d/store_admission.h"
#include "starling/fabric/network/network.h"
#include "starling/fabric/network/store/client.h"
#include "starling/record/log.h"

namespace starling::fabric {
namespace {

using c10d_engine::GroupPtr;
using c10d_engine::Groups;
using c10d_engine::StorePtr;

// torchrun's store, hosted by its agent or, with torch's older launchers, by rank 0.
StorePtr connect_to_torchrun_store(const FabricRequest& request, bool may_host) {
  if (!environment::kMasterAddress.is_set() || !environment::kMasterPort.is_set())
    throw InvalidArgument(
        "the fabric c10d needs a rendezvous store: start the ranks with starling run or torchrun, or set "
        "STARLING_STORE=address:port or MASTER_ADDR and MASTER_PORT");
  const std::string where =
      fmt::format("{}:{}", environment::kMasterAddress.text(), environment::kMasterPort.text());
  const network::StoreAddress address = network::read_store_address(where);
  ::c10d::TCPStoreOptions options;
  options.port = address.port;
  options.isServer = may_host && request.rank == 0 && environment::kTorchAgentStore.text() != "True";
  options.waitWorkers = false;
  options.timeout = request.timeout;
  try {
    return c10::make_intrusive<::c10d::TCPStore>(address.host, options);
  } catch (const std::exception& error) {
    throw Error(fmt::format("rank {} cannot reach the store at {}: {}", request.rank, where, error.what()));
  }
}

// Starling's launcher hosts a store that requires the job's token, so that the token must not appear in its
// keys.
StorePtr connect_to_store(const FabricRequest& request, bool may_host) {
  using ::c10d::PrefixStore;
  StorePtr store;
  if (request.store_address.empty())
    store = c10::make_intrusive<PrefixStore>("starling/" + request.job,
                                             connect_to_torchrun_store(request, may_host));
  else
    store = c10::make_intrusive<PrefixStore>(
        "starling", c10d_engine::make_token_store(request.store_address, request.job, request.timeout));
  store->setTimeout(request.timeout);
  return store;
}

#ifdef STARLING_HAS_GLOO
Groups make_gloo(const StorePtr& store, const FabricRequest& request) {
  using Gloo = ::c10d::ProcessGroupGloo;
  auto options = Gloo::Options::create(request.timeout);
  options->threads = 1;  // for collectives, which are not used
  const std::string interface =
      request.interface_.empty() ? environment::kGlooInterface.text() : request.interface_;
  try {
    options->devices.push_back(interface.empty() ? Gloo::createDefaultDevice()
                                                 : Gloo::createDeviceForInterface(interface));
    const auto make = [&](const std::string& name) {
      return c10::make_intrusive<Gloo>(c10::make_intrusive<::c10d::PrefixStore>(name, store), request.rank,
                                       request.size, options);
    };
    return {make("frames"), make("up"), make("down")};  // in this order: braces guarantee it
  } catch (const std::exception& error) {
    throw Error(
        fmt::format("Gloo{}{}: {}", interface.empty() ? "" : " on interface ", interface, error.what()));
  }
}
#else
Groups make_gloo(const StorePtr&, const FabricRequest&) {
  throw Error(
      "this build of Starling cannot make Gloo groups, because Gloo's headers (Debian: libgloo-dev) were "
      "missing; "
      "make a group in Python and pass it: starling.torch.init(process_group=group)");
}
#endif

// Gloo writes to connections whose other end may have died; the resulting SIGPIPE would kill the process. A
// handler set by the program is kept.
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
  return make_network_fabric(c10d_engine::make_transport(std::move(groups), size, all),
                             c10d_engine::make_store_consensus(std::move(store)));
}

namespace {

// Checked in advance: Gloo waits for connections that it cannot open as if they were late.
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

// Ranks that leave and join again must not find their old keys in the store.
int joined_before(const FabricRequest& request) {
  static std::mutex mutex;
  static std::map<std::string, int> times;
  const std::lock_guard lock(mutex);
  return times[fmt::format("{} {} {}", request.store_address, request.job, request.rank)]++;
}

// Warns at once when the store is gone; otherwise only the next failure of a rank would reveal it.
std::shared_ptr<void> watch_store(const FabricRequest& request) {
  if (request.store_address.empty()) return nullptr;  // torch's own store is not watched
  return std::make_shared<network::StoreWatch>(
      std::make_shared<network::StoreClient>(request.store_address, request.job, request.timeout),
      [rank = request.rank](const std::string& why) {
        log(LogLevel::normal, fmt::format("rank {}: the rendezvous store is gone ({}). The job continues, "
                                          "but no process can join it any "
                                          "more, and it cannot recover from the failure of a rank",
                                          rank, why));
      });
}

// With its own connection: a timeout here may leave it in an undefined state.
std::shared_ptr<NetworkFabric> make_fabric_in(const std::string& part, const FabricRequest& request) {
  const StorePtr store = c10::make_intrusive<::c10d::PrefixStore>(part, connect_to_store(request, false));
  return adopt_c10d(make_gloo(store, request), store);
}

}  // namespace

std::shared_ptr<Fabric> join_c10d(const FabricRequest& request) {
  read_log_level();
  check_open_files(request.size);
  const StorePtr job = connect_to_store(request, true);
  StorePtr store = job;
  if (const int times = joined_before(request); times > 0)
    store = c10::make_intrusive<::c10d::PrefixStore>(fmt::format("join {}", times), job);
  c10d_engine::FormedGroups formed = c10d_engine::form_groups(
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
      make_network_fabric(c10d_engine::make_transport(std::move(formed.groups), request.size, formed.members),
                          c10d_engine::make_store_consensus(store, watch_store(request)));
  fabric->set_admission(c10d_engine::make_store_admission(job, request, make_fabric_in));
  return fabric;
}

std::shared_ptr<Fabric> enter_c10d(const FabricRequest& request, const WrapFabric& wrap) {
  read_log_level();
  return c10d_engine::enter(connect_to_store(request, false), request, make_fabric_in, wrap);
}

}  // namespace starling::fabric
