#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <optional>
#include <string_view>

#include "starling/fabric/hybrid/hybrid.h"
#include "starling/fabric/local/local.h"
#include "starling/fabric/plugin.h"
#include "starling/flock/flock.h"
#include "starling/flock/place.h"
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

std::shared_ptr<Fabric> join_fabric(const Place& place, std::optional<std::chrono::nanoseconds> timeout) {
  const FabricChoice choice = choose_fabric(place);
  log(LogLevel::info,
      fmt::format("rank {} of {} joins over {}, as {} says", place.rank, place.size, text(choice),
                  variable("STARLING_FABRIC").empty() ? place.launcher : "STARLING_FABRIC"));
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout.value_or(LocalOptions().join_timeout));
  if (choice.name == "local") {
    LocalOptions options;
    options.join_timeout = limit;
    return join_local(place.job, place.rank, place.size, options);
  }
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
  read_log_level();
  const bool faulty = faults.drop > 0 || faults.lose > 0 || faults.delay > 0 || !faults.kills.empty();
  std::optional<std::chrono::nanoseconds> timeout;
  if (const char* text = std::getenv("STARLING_TIMEOUT")) timeout = read_seconds(text);
  const bool later = comes_later();
  const auto place = later ? std::nullopt : find_place();
  if (!place && !later) log(LogLevel::info, "no launcher has started this process: a flock of one");
  const auto fabric = later   ? enter_fabric(timeout)
                      : place ? join_fabric(*place, timeout)
                              : local_threads(1).front();
  Flock flock(faulty ? make_faulty(fabric, faults) : fabric);
  if (timeout) flock.set_timeout(*timeout);
  return flock;
}

}  // namespace starling
