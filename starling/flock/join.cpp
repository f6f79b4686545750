#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <optional>
#include <string_view>

#include "starling/fabric/local/local.h"
#include "starling/flock/flock.h"
#include "starling/record/log.h"

namespace starling {
namespace {

// The variables by which a launcher tells a process who it is; the first set that is there counts.
struct LauncherVariables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* job;
  const char* part = nullptr;  // tells a job's flocks apart, where there may be several
};

constexpr LauncherVariables kLaunchers[] = {
    {"starling run", "STARLING_RANK", "STARLING_SIZE", "STARLING_JOB"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"},
    {"torchrun", "RANK", "WORLD_SIZE", "MASTER_PORT"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID"},
};

Rank read_rank(const char* variable, std::string_view text) {
  Rank value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size())
    throw InvalidArgument(fmt::format("{}={} is not a whole number", variable, text));
  return value;
}

std::chrono::nanoseconds read_seconds(std::string_view text) {
  double seconds = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || !(seconds > 0 && seconds < 1e9))
    throw InvalidArgument(fmt::format("STARLING_TIMEOUT={} is not a number of seconds", text));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

std::optional<Rank> launched_ranks() {
  for (const LauncherVariables& variables : kLaunchers)
    if (std::getenv(variables.rank) != nullptr)
      if (const char* size = std::getenv(variables.size)) return read_rank(variables.size, size);
  return std::nullopt;
}

Flock join() {
  return join(Faults());
}

Flock join(const Faults& faults) {
  read_log_level();
  const bool faulty = faults.drop > 0 || faults.lose > 0 || faults.delay > 0 || !faults.kills.empty();
  std::optional<std::chrono::nanoseconds> timeout;
  if (const char* text = std::getenv("STARLING_TIMEOUT")) timeout = read_seconds(text);
  const auto bounded = [&](const std::shared_ptr<Fabric>& fabric) {
    Flock flock(faulty ? make_faulty(fabric, faults) : fabric);
    if (timeout) flock.set_timeout(*timeout);
    return flock;
  };
  LocalOptions options;
  if (timeout) options.join_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(*timeout);
  for (const LauncherVariables& variables : kLaunchers) {
    const char* rank = std::getenv(variables.rank);
    const char* size = std::getenv(variables.size);
    if (rank == nullptr || size == nullptr) continue;
    const char* job = std::getenv(variables.job);
    if (job == nullptr)
      throw InvalidArgument(fmt::format("{} set {} but not {}, which tells jobs apart", variables.launcher,
                                        variables.rank, variables.job));
    const char* part = variables.part == nullptr ? nullptr : std::getenv(variables.part);
    return bounded(join_local(part == nullptr ? std::string(job) : fmt::format("{}.{}", job, part),
                              read_rank(variables.rank, rank), read_rank(variables.size, size), options));
  }
  return bounded(local_threads(1).front());
}

}  // namespace starling
