#include <chrono>
#include <fmt/format.h>
#include <mutex>
#include <optional>

#include "starling/base/environment.h"
#include "starling/base/forks.h"
#include "starling/base/launcher_notice.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/fabric/hybrid/hybrid.h"
#include "starling/fabric/local/local.h"
#include "starling/fabric/network/store/protocol.h"
#include "starling/fabric/plugin.h"
#include "starling/flock/flock.h"
#include "starling/flock/flock_state.h"
#include "starling/flock/launch_info.h"
#include "starling/launch/exited_ranks.h"
#include "starling/record/log.h"

namespace starling::flock {
namespace {

/// The flock of this process. Threads that join at the same time wait for the first.
struct Joined {
  std::mutex mutex;
  std::weak_ptr<FlockState> state;
  Faults faults;
  int forks = 0;
  int times = 0;  // that this process has joined
};

Joined& joined() {
  static Joined one;
  return one;
}

bool has_faults(const Faults& faults) {
  return faults.drop > 0 || faults.lose > 0 || faults.delay > 0 || !faults.kills.empty();
}

std::shared_ptr<Fabric> join_fabric(const LaunchInfo& info, std::optional<std::chrono::nanoseconds> timeout,
                                    int times) {
  const FabricChoice choice = choose_fabric(info);
  log(LogLevel::info,
      fmt::format("rank {} of {} joins over {}, as {} says", info.rank, info.size, text(choice),
                  environment::kFabric.text().empty() ? info.launcher : "STARLING_FABRIC"));
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout.value_or(LocalOptions().join_timeout));
  if (choice.name == "local") {
    LocalOptions options;
    options.join_timeout = limit;
    options.exited = [exits = std::make_shared<launch::ExitedRanks>()](Rank rank) {
      return exits->has(rank);
    };
    // A process that left and joins again does not meet one that still joins for the first time.
    const std::string job = times == 0 ? info.job : fmt::format("{}#{}", info.job, times);
    return join_local(job, info.rank, info.size, options);
  }
  if (!environment::kStore.text().empty()) network::check_token(info.job);
  auto fabric = load_fabric(choice.name)
                    .join({info.rank, info.size, info.job, environment::kStore.text(),
                           environment::kInterface.text(), limit});
  if (!choice.hybrid) return fabric;
  return join_hybrid(std::dynamic_pointer_cast<NetworkFabric>(fabric), info.job, limit);
}

bool comes_later() {
  const std::string word = environment::kEnter.text();
  if (word.empty() || word == "0") return false;
  if (word == "1") return true;
  throw InvalidArgument(fmt::format("STARLING_ENTER={} is neither 1 nor 0", word));
}

// A newcomer has no rank before the members admit it.
std::shared_ptr<Fabric> enter_fabric(std::optional<std::chrono::nanoseconds> timeout) {
  LaunchInfo info{"STARLING_ENTER", 0, 1, environment::kJob.text(), true, "c10d"};
  if (info.job.empty())
    throw InvalidArgument("STARLING_ENTER is set, but not STARLING_JOB, the word of the job to enter");
  const FabricChoice choice =
      environment::kFabric.text().empty() ? FabricChoice{"c10d"} : choose_fabric(info);
  if (choice.name == "local" || load_fabric(choice.name).enter == nullptr)
    throw InvalidArgument(fmt::format(
        "STARLING_ENTER: the fabric {} does not admit newcomers; c10d and hybrid(c10d) do", text(choice)));
  log(LogLevel::info, fmt::format("waiting for a running job over {} to admit this process", text(choice)));
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout.value_or(LocalOptions().join_timeout));
  if (!environment::kStore.text().empty()) network::check_token(info.job);
  const FabricRequest request{0,    1, info.job, environment::kStore.text(), environment::kInterface.text(),
                              limit};
  return load_fabric(choice.name)
      .enter(request, choice.hybrid ? wrap_in_hybrid(info.job, limit) : WrapFabric());
}

}  // namespace

std::optional<Rank> launched_ranks() {
  const auto info = find_launch_info();
  if (!info) return std::nullopt;
  return info->size;
}

Flock join() {
  return join(Faults());
}

Flock join(const Faults& faults) {
  Joined& known = joined();
  const std::lock_guard lock(known.mutex);
  if (auto state = known.state.lock(); state && known.forks == forks_so_far()) {
    if (faults != known.faults)
      throw InvalidArgument("join: this process is in a flock already, with other faults; leave it first");
    return Flock(std::move(state));
  }
  read_log_level();
  const std::optional<std::chrono::nanoseconds> timeout = environment::kTimeout.seconds();
  const bool later = comes_later();
  const auto info = later ? std::nullopt : find_launch_info();
  if (!info && !later) log(LogLevel::info, "no launcher has started this process: a flock of one");
  tell_launcher(LauncherNotice::joins);
  const auto fabric = later  ? enter_fabric(timeout)
                      : info ? join_fabric(*info, timeout, known.times)
                             : local_threads(1).front();
  Flock flock(has_faults(faults) ? make_faulty(fabric, faults) : fabric);
  if (timeout) flock.set_timeout(*timeout);
  if (const auto bytes = environment::kSendLimit.bytes()) flock.set_send_limit(*bytes);
  tell_launcher(LauncherNotice::joined);
  known.state = flock.state_;
  known.faults = faults;
  known.forks = forks_so_far();
  ++known.times;
  return flock;
}

void Flock::replace(const Flock& before) const {
  Joined& known = joined();
  const std::lock_guard lock(known.mutex);
  if (known.state.lock() == before.state_) known.state = state_;
}

}  // namespace starling::flock
