#include <chrono>
#include <fmt/format.h>
#include <mutex>
#include <optional>

#include "starling/base/environment.h"
#include "starling/base/forks.h"
#include "starling/base/launcher_notice.h"
#include "starling/base/misspelt_variables.h"
#include "starling/fabric/cuda/cuda.h"
#include "starling/fabric/faulty/faulty.h"
#include "starling/fabric/local/local.h"
#include "starling/fabric/network/store/protocol.h"
#include "starling/flock/flock.h"
#include "starling/flock/flock_state.h"
#include "starling/flock/join_threads.h"
#include "starling/flock/launch_info.h"
#include "starling/launch/environment.h"
#include "starling/record/log.h"

namespace starling::flock {
namespace {

/// The flock of this process. Threads that join at the same time wait for the first one.
struct Joined {
  std::mutex mutex;
  std::weak_ptr<FlockState> state;
  Faults faults;
  int forks = 0;
  int times = 0;  // how often this process has joined
};

Joined& joined() {
  static Joined one;
  return one;
}

bool has_faults(const Faults& faults) {
  return faults.drop > 0 || faults.lose > 0 || faults.delay > 0 || !faults.kills.empty();
}

FabricRequest request_of(const LaunchInfo& info, const FabricChoice& choice,
                         std::optional<std::chrono::nanoseconds> timeout, int times = 0) {
  FabricRequest request{info.rank, info.size, info.job, environment::kStore.text(),
                        environment::kInterface.text()};
  if (!request.store_address.empty() && !store_of(choice).empty()) network::check_token(info.job);
  if (timeout) request.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(*timeout);
  request.times = times;
  return request;
}

std::shared_ptr<Fabric> join_as(const LaunchInfo& info, std::optional<std::chrono::nanoseconds> timeout,
                                int times) {
  const FabricChoice choice = choose_fabric(info);
  if (info.rank == 0 && times == 0)
    for (const std::string& line : misspelt_variables()) log(LogLevel::normal, line);
  log(LogLevel::info,
      fmt::format("rank {} of {} joins over {}, according to {}", info.rank, info.size, text(choice),
                  environment::kFabric.text().empty() ? info.launcher : "STARLING_FABRIC"));
  return join_fabric(choice, request_of(info, choice, timeout, times));
}

bool comes_later() {
  const std::string word = environment::kEnter.text();
  if (word.empty() || word == "0") return false;
  if (word == "1") return true;
  throw InvalidArgument(fmt::format("STARLING_ENTER={} is neither 1 nor 0", word));
}

// A newcomer has no rank until the members admit it.
std::shared_ptr<Fabric> enter_job(std::optional<std::chrono::nanoseconds> timeout) {
  const LaunchInfo info{"STARLING_ENTER", 0, 1, environment::kJob.text(), true, "c10d"};
  if (info.job.empty())
    throw InvalidArgument("STARLING_ENTER is set, but not STARLING_JOB, the word of the job to enter");
  const FabricChoice choice =
      environment::kFabric.text().empty() ? FabricChoice{info.network} : choose_fabric(info);
  log(LogLevel::info, fmt::format("waiting for a running job over {} to admit this process", text(choice)));
  return enter_fabric(choice, request_of(info, choice, timeout));
}

// A flock over a fabric that was joined, with what the environment sets.
Flock flock_over(const std::shared_ptr<Fabric>& joined_fabric, const std::string& job, const Faults& faults,
                 std::optional<std::chrono::nanoseconds> timeout) {
  const auto fabric = with_device_messages(joined_fabric, job);
  Flock flock(has_faults(faults) ? make_faulty(fabric, faults) : fabric);
  if (timeout) flock.set_timeout(*timeout);
  if (const auto bytes = environment::kSendLimit.bytes()) flock.set_send_limit(*bytes);
  return flock;
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
  const auto joined_fabric = later  ? enter_job(timeout)
                             : info ? join_as(*info, timeout, known.times)
                                    : local_threads(1).front();
  Flock flock = flock_over(joined_fabric, info ? fmt::format("{}#{}", info->job, known.times) : std::string(),
                           faults, timeout);
  tell_launcher(LauncherNotice::joined);
  known.state = flock.state_;
  known.faults = faults;
  known.forks = forks_so_far();
  ++known.times;
  return flock;
}

std::vector<Flock> join_as_threads(Rank size, const Faults& faults) {
  read_log_level();
  const std::string job = launch::random_token();
  std::vector<Flock> flocks;
  for (const auto& fabric : local_threads(size))
    flocks.push_back(flock_over(fabric, job, faults, environment::kTimeout.seconds()));
  return flocks;
}

void Flock::replace(const Flock& before) const {
  Joined& known = joined();
  const std::lock_guard lock(known.mutex);
  if (known.state.lock() == before.state_) known.state = state_;
}

}  // namespace starling::flock
