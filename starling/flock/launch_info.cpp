#include "starling/flock/launch_info.h"

#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/fabric/plugin.h"

namespace starling::flock {
namespace {

// The variables by which a launcher tells a process who it is; the first set that is there counts.
struct LauncherVariables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* job;      // null: nothing tells jobs apart; then `here` must be there, too
  const char* part;     // tells a job's flocks apart, where there may be several
  const char* here;     // ranks on this host
  const char* hosts;    // where there is no such variable
  const char* network;  // the fabric between hosts
};

constexpr LauncherVariables kLaunchers[] = {
    {"starling run", environment::kRank.name, environment::kSize.name, environment::kJob.name, nullptr,
     nullptr, nullptr, "c10d"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", nullptr,
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, "mpi"},
    // MPICH's, and its relatives'.
    {"mpiexec", "PMI_RANK", "PMI_SIZE", nullptr, nullptr, "MPI_LOCALNRANKS", nullptr, "mpi"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID", nullptr, "SLURM_NNODES", "mpi"},
    {"torchrun", "RANK", "WORLD_SIZE", "MASTER_PORT", nullptr, "LOCAL_WORLD_SIZE", nullptr, "c10d"},
};

Rank read_rank(const char* variable, std::string_view text) {
  Rank value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size())
    throw InvalidArgument(fmt::format("{}={} is not a whole number", variable, text));
  return value;
}

bool on_several_hosts(const LauncherVariables& variables, Rank size) {
  if (variables.here != nullptr)
    if (const char* here = std::getenv(variables.here)) return read_rank(variables.here, here) < size;
  if (variables.hosts != nullptr)
    if (const char* hosts = std::getenv(variables.hosts)) return read_rank(variables.hosts, hosts) > 1;
  return false;
}

}  // namespace

std::optional<LaunchInfo> find_launch_info() {
  for (const LauncherVariables& variables : kLaunchers) {
    const char* rank = std::getenv(variables.rank);
    const char* size = std::getenv(variables.size);
    if (rank == nullptr || size == nullptr) continue;
    const bool nameless = variables.job == nullptr;
    if (nameless && std::getenv(variables.here) == nullptr) continue;
    const char* job = std::getenv(nameless ? environment::kJob.name : variables.job);
    if (nameless && job == nullptr) job = "";
    if (job == nullptr)
      throw InvalidArgument(fmt::format("{} set {} but not {}, which tells jobs apart", variables.launcher,
                                        variables.rank, variables.job));
    const char* part = variables.part == nullptr ? nullptr : std::getenv(variables.part);
    LaunchInfo place{variables.launcher,
                     read_rank(variables.rank, rank),
                     read_rank(variables.size, size),
                     part == nullptr ? std::string(job) : fmt::format("{}.{}", job, part),
                     false,
                     variables.network};
    place.several_hosts = on_several_hosts(variables, place.size);
    return place;
  }
  return std::nullopt;
}

std::string text(const FabricChoice& choice) {
  return choice.hybrid ? fmt::format("hybrid({})", choice.name) : choice.name;
}

namespace {

FabricChoice fitting(const LaunchInfo& place) {
  if (place.job.empty()) return {place.network};
  return place.several_hosts ? FabricChoice{place.network, true} : FabricChoice{"local"};
}

FabricChoice asked_for(const LaunchInfo& place, const std::string& asked) {
  if (asked == "hybrid") return {place.network, true};
  std::vector<std::string> words = {"hybrid"};
  for (const FabricKind& kind : fabric_kinds()) {
    if (kind.name == "hybrid") continue;
    for (const bool hybrid : {false, true}) {
      if (hybrid && !kind.has_engine()) continue;
      FabricChoice choice{kind.name, hybrid};
      words.push_back(text(choice));
      if (words.back() == asked) return choice;
    }
  }
  throw InvalidArgument(fmt::format("STARLING_FABRIC={} is none of: {}", asked, join_words(words)));
}

}  // namespace

FabricChoice choose_fabric(const LaunchInfo& place) {
  const std::string asked = environment::kFabric.text();
  if (asked.empty()) return fitting(place);
  FabricChoice choice = asked_for(place, asked);
  if (place.job.empty() && (choice.hybrid || choice.name == "local"))
    throw InvalidArgument(fmt::format(
        "{} names no job by which ranks of a host find each other for STARLING_FABRIC={}; give all of "
        "them the same STARLING_JOB, a word that no other job has",
        place.launcher, asked));
  return choice;
}

}  // namespace starling::flock
