#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <mutex>
#include <optional>
#include <string_view>

#include "starling/base/forks.h"
#include "starling/fabric/hybrid/hybrid.h"
#include "starling/fabric/local/local.h"
#include "starling/fabric/network/store/protocol.h"
#include "starling/fabric/plugin.h"
#include "starling/flock/flock.h"
#include "starling/flock/place.h"
#include "starling/launch/exits.h"
#include "starling/record/log.h"

namespace starling {
namespace {

std::chrono::nanoseconds read_seconds(std::string_view text) {
  double seconds = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || !(seconds > 0 && seconds < 1e9))
    throw InvalidArgument(fmt::format("STARLING_TIMEOUT={} is not a number of seconds", text));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::uint64_t read_bytes(std::string_view text) {
  std::uint64_t bytes = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || bytes == 0)
    throw InvalidArgument(fmt::format("STARLING_SEND_LIMIT={} is not a number of bytes above 0", text));
  return bytes;
}

/// The flock of this process. Those who join at the same time wait for the first.
struct Joined {
  std::mutex mutex;
  std::weak_ptr<Core> core;
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

std::shared_ptr<Fabric> join_fabric(const Place& place, std::optional<std::chrono::nanoseconds> timeout,
                                    int times) {
  const FabricChoice choice = choose_fabric(place);
  log(LogLevel::info,
      fmt::format("rank {} of {} joins over {}, as {} says", place.rank, place.size, text(choice),
                  variable("STARLING_FABRIC").empty() ? place.launcher : "STARLING_FABRIC"));
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout.value_or(LocalOptions().join_timeout));
  if (choice.name == "local") {
    LocalOptions options;
    options.join_timeout = limit;
    options.exited = [exits = std::make_shared<launch::Exits>()](Rank rank) { return exits->has(rank); };
    // Who has left and joins anew does not meet who still joins for the first time.
    const std::string job = times == 0 ? place.job : fmt::format("{}#{}", place.job, times);
    return join_local(job, place.rank, place.size, options);
  }
  if (!variable("STARLING_STORE").empty()) network::check_token(place.job);
  auto fabric = load_fabric(choice.name)
                    .join({place.rank, place.size, place.job, variable("STARLING_STORE"),
                           variable("STARLING_INTERFACE"), limit});
  if (!choice.hybrid) return fabric;
  return join_hybrid(std::dynamic_pointer_cast<NetworkFabric>(fabric), place.job, limit);
}

bool comes_later() {
  const std::string word = variable("STARLING_ENTER");
  if (word.empty() || word == "0") return false;
  if (word == "1") return true;
  throw InvalidArgument(fmt::format("STARLING_ENTER={} is neither 1 nor 0", word));
}

// Who comes later has no rank before the others let it in.
std::shared_ptr<Fabric> enter_fabric(std::optional<std::chrono::nanoseconds> timeout) {
  Place place{"STARLING_ENTER", 0, 1, variable("STARLING_JOB"), true, "c10d"};
  if (place.job.empty())
    throw InvalidArgument("STARLING_ENTER is set, but not STARLING_JOB, the word of the job to enter");
  const FabricChoice choice =
      variable("STARLING_FABRIC").empty() ? FabricChoice{"c10d"} : choose_fabric(place);
  if (choice.name == "local" || load_fabric(choice.name).enter == nullptr)
    throw InvalidArgument(fmt::format(
        "STARLING_ENTER: jobs over {} have no door for newcomers; those over c10d and hybrid(c10d) do",
        text(choice)));
  log(LogLevel::info, fmt::format("waits to be let into a job over {}", text(choice)));
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout.value_or(LocalOptions().join_timeout));
  if (!variable("STARLING_STORE").empty()) network::check_token(place.job);
  const FabricRequest request{0,    1, place.job, variable("STARLING_STORE"), variable("STARLING_INTERFACE"),
                              limit};
  return load_fabric(choice.name)
      .enter(request, choice.hybrid ? finish_hybrid(place.job, limit) : FinishFabric());
}

}  // namespace

std::optional<Rank> launched_ranks() {
  const auto place = find_place();
  if (!place) return std::nullopt;
  return place->size;
}

Flock join() {
  return join(Faults());
}

Flock join(const Faults& faults) {
  Joined& known = joined();
  const std::lock_guard lock(known.mutex);
  if (auto core = known.core.lock(); core && known.forks == forks_so_far()) {
    if (faults != known.faults)
      throw InvalidArgument("join: this process is in a flock already, with other faults; leave it first");
    return Flock(std::move(core));
  }
  read_log_level();
  std::optional<std::chrono::nanoseconds> timeout;
  if (const char* text = std::getenv("STARLING_TIMEOUT")) timeout = read_seconds(text);
  const bool later = comes_later();
  const auto place = later ? std::nullopt : find_place();
  if (!place && !later) log(LogLevel::info, "no launcher has started this process: a flock of one");
  const auto fabric = later   ? enter_fabric(timeout)
                      : place ? join_fabric(*place, timeout, known.times)
                              : local_threads(1).front();
  Flock flock(has_faults(faults) ? make_faulty(fabric, faults) : fabric);
  if (timeout) flock.set_timeout(*timeout);
  if (const std::string text = variable("STARLING_SEND_LIMIT"); !text.empty())
    flock.set_send_limit(read_bytes(text));
  known.core = flock.core_;
  known.faults = faults;
  known.forks = forks_so_far();
  ++known.times;
  return flock;
}

void Flock::take_the_place_of(const Flock& before) const {
  Joined& known = joined();
  const std::lock_guard lock(known.mutex);
  if (known.core.lock() == before.core_) known.core = core_;
}

}  // namespace starling
