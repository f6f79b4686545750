#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

#include "starling/fabric/local/local.h"
#include "starling/flock/flock.h"

namespace starling {
namespace {

// The variables by which a launcher tells a process who it is; the first set that is there counts.
struct LauncherVariables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* job;
};

constexpr LauncherVariables kLaunchers[] = {
    {"starling run", "STARLING_RANK", "STARLING_SIZE", "STARLING_JOB"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"},
    {"torchrun", "RANK", "WORLD_SIZE", "MASTER_PORT"},
};

Rank read_rank(const char* variable) {
  const std::string_view text = std::getenv(variable);
  Rank value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size())
    throw InvalidArgument(fmt::format("{}={} is not a whole number", variable, text));
  return value;
}

}  // namespace

Flock join() {
  for (const LauncherVariables& variables : kLaunchers) {
    if (std::getenv(variables.rank) == nullptr || std::getenv(variables.size) == nullptr) continue;
    const char* job = std::getenv(variables.job);
    if (job == nullptr)
      throw InvalidArgument(fmt::format("{} set {} but not {}, which tells jobs apart", variables.launcher,
                                        variables.rank, variables.job));
    return Flock(join_local(job, read_rank(variables.rank), read_rank(variables.size)));
  }
  return Flock(local_threads(1).front());
}

}  // namespace starling
