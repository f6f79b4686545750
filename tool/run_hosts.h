#pragma once

#include <string>

#include "starling/launch/hosts.h"
#include "starling/launch/launcher.h"

namespace starling::tool {

/// What `starling run --hosts` was told, as typed; "" for what was not.
struct HostsOptions {
  std::string hosts;
  std::string launcher;
  std::string interface;
  std::string address;
  std::string tool;
};

/// The fabric that hosts the store where ranks of `fabric` meet; "" where they need none.
std::string store_of(const std::string& fabric);

/// Runs a job over several hosts, to its end; returns the exit status. `counted`: job.ranks was given.
int run_on_hosts(const launch::LaunchOptions& job, bool counted, const HostsOptions& options, int restarts,
                 const std::string& fabric);

/// Those of a job's k-th attempt, from 0: ranks that were started again know it, and their logs go on.
launch::LaunchOptions options_of_attempt(const launch::LaunchOptions& job, int attempt);

}  // namespace starling::tool
