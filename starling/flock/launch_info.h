#pragma once

#include <optional>
#include <string>

#include "starling/base/types.h"
#include "starling/fabric/plugin.h"

namespace starling::flock {

/// The rank, size and job that the launcher gave this process.
struct LaunchInfo {
  std::string launcher;
  Rank rank = 0;
  Rank size = 1;
  std::string job;  // identifies the job; empty if the launcher has no name for it
  bool several_hosts = false;
  std::string network;  // the fabric for several hosts
};

/// The launch info from the variables of starling run, mpirun, MPICH's mpiexec, srun or torchrun, in this
/// order; empty for a process that was started alone.
std::optional<LaunchInfo> find_launch_info();

/// The fabric that STARLING_FABRIC names, or else the one that suits the launcher.
FabricChoice choose_fabric(const LaunchInfo& info);

}  // namespace starling::flock
