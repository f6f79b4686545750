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
  const auto place = find_place();
  if (!place) log(LogLevel::info, "no launcher has started this process: a flock of one");
  const auto fabric = place ? join_fabric(*place, timeout) : local_threads(1).front();
  Flock flock(faulty ? make_faulty(fabric, faults) : fabric);
  if (timeout) flock.set_timeout(*timeout);
  return flock;
}

}  // namespace starling
