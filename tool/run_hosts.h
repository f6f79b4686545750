#pragma once

#include <string>

#include "starling/launch/hosts.h"
#include "starling/launch/launcher.h"

namespace starling::tool {

/// The options of `starling run --hosts`, as typed; "" if not given.
struct HostsOptions {
  std::string hosts;
  std::string launcher;
  std::string interface;
  std::string address;
  std::string tool;
};

/// The fabric that provides the store for ranks of `fabric`; "" if they need none.
std::string store_of(const std::string& fabric);

/// Runs a job over several hosts to its end; returns the exit status. `counted`: job.ranks was given.
int run_on_hosts(const launch::LaunchOptions& job, bool counted, const HostsOptions& options, int restarts,
                 const std::string& fabric);

/// The options of a job's k-th attempt, from 0: restarted ranks know that they are, and append to their logs.
launch::LaunchOptions options_of_attempt(const launch::LaunchOptions& job, int attempt);

}  // namespace starling::tool
