#include "starling/flock/launch_info.h"

#include <fmt/format.h>
#include <limits>

#include "starling/base/closest.h"
#include "starling/base/environment.h"
#include "starling/base/error.h"

namespace starling::flock {
namespace {

// The variables in which launchers pass a process its rank; the first launcher whose variables are set
// counts.
struct LauncherVariables {
  const char* launcher;
  const EnvironmentVariable* rank;
  const EnvironmentVariable* size;
  const EnvironmentVariable* job;    // null: the launcher does not name jobs; then `here` must be set, too
  const EnvironmentVariable* part;   // distinguishes the flocks of a job, if it may have several
  const EnvironmentVariable* here;   // ranks on this host
  const EnvironmentVariable* hosts;  // used if there is no such variable
  const char* network;               // the fabric between hosts
};

constexpr LauncherVariables kLaunchers[] = {
    {"starling run", &environment::kRank, &environment::kSize, &environment::kJob, nullptr, nullptr, nullptr,
     "c10d"},
    {"mpirun", &environment::kOpenMpiRank, &environment::kOpenMpiSize, &environment::kPmixNamespace, nullptr,
     &environment::kOpenMpiLocalSize, nullptr, "mpi"},
    // MPICH and its derivatives.
    {"mpiexec", &environment::kPmiRank, &environment::kPmiSize, nullptr, nullptr,
     &environment::kMpichLocalSize, nullptr, "mpi"},
    {"srun", &environment::kSlurmRank, &environment::kSlurmSize, &environment::kSlurmJob,
     &environment::kSlurmStep, nullptr, &environment::kSlurmHosts, "mpi"},
    {"torchrun", &environment::kTorchRank, &environment::kTorchSize, &environment::kMasterPort, nullptr,
     &environment::kTorchLocalSize, nullptr, "c10d"},
};

// Empty if there is no such variable or it is not set.
std::optional<Rank> read_rank(const EnvironmentVariable* variable) {
  if (variable == nullptr) return std::nullopt;
  return variable->number(0, std::numeric_limits<Rank>::max());
}

bool on_several_hosts(const LauncherVariables& variables, Rank size) {
  if (const auto here = read_rank(variables.here)) return *here < size;
  return read_rank(variables.hosts).value_or(1) > 1;
}

}  // namespace

std::optional<LaunchInfo> find_launch_info() {
  for (const LauncherVariables& variables : kLaunchers) {
    const auto rank = read_rank(variables.rank);
    const auto size = read_rank(variables.size);
    if (!rank || !size) continue;
    const bool nameless = variables.job == nullptr;
    if (nameless && !variables.here->is_set()) continue;
    if (!nameless && !variables.job->is_set())
      throw InvalidArgument(fmt::format("{} set {} but not {}, which identifies the job", variables.launcher,
                                        variables.rank->name, variables.job->name));
    const std::string job = nameless ? environment::kJob.text() : variables.job->text();
    const bool has_part = variables.part != nullptr && variables.part->is_set();
    LaunchInfo info{variables.launcher,
                    *rank,
                    *size,
                    has_part ? fmt::format("{}.{}", job, variables.part->text()) : job,
                    false,
                    variables.network};
    info.several_hosts = on_several_hosts(variables, info.size);
    return info;
  }
  return std::nullopt;
}

namespace {

// The default fabrics for ranks on one host, and for ranks on several hosts with the launcher's network.
constexpr const char* kOnOneHost = "local";
constexpr const char* kOnSeveralHosts = "hybrid";

FabricChoice fitting(const LaunchInfo& info) {
  if (info.job.empty()) return {info.network};
  return info.several_hosts ? FabricChoice{kOnSeveralHosts, info.network} : FabricChoice{kOnOneHost};
}

FabricChoice asked_for(const LaunchInfo& info, const std::string& asked) {
  std::vector<std::string> words;
  for (FabricChoice& choice : fabric_choices()) {
    words.push_back(text(choice));
    if (words.back() != asked) continue;
    if (choice.inner.empty() && find_fabric(choice.name).wrap != nullptr) choice.inner = info.network;
    return choice;
  }
  throw InvalidArgument("STARLING_FABRIC: " + unknown_name("fabric", asked, words));
}

}  // namespace

FabricChoice choose_fabric(const LaunchInfo& info) {
  const std::string asked = environment::kFabric.text();
  if (asked.empty()) return fitting(info);
  FabricChoice choice = asked_for(info, asked);
  if (info.job.empty() && find_fabric(choice.name).needs_job)
    throw InvalidArgument(fmt::format(
        "{} sets no job name, which ranks of a host need to find each other with STARLING_FABRIC={}; give "
        "all of them the same STARLING_JOB, a word that no other job uses",
        info.launcher, asked));
  return choice;
}

}  // namespace starling::flock
