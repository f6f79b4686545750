#pragma once

#include <chrono>
#include <string>
#include <sys/types.h>
#include <vector>

#include "starling/base/types.h"

namespace starling::local {

/// What everybody knows after the rendezvous, by rank.
struct Meeting {
  std::vector<int> descriptors;  // of the regions; the caller owns them
  std::vector<pid_t> pids;
};

/// Everybody brings its region to rank 0 over an abstract socket named after the job and gets all regions
/// back. Only processes of the same user are let in. Throws Error that names who is missing, after the
/// timeout.
Meeting meet(const std::string& job, Rank rank, Rank size, int descriptor, std::chrono::milliseconds timeout);

}  // namespace starling::local
