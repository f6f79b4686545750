#pragma once

#include <cstdint>
#include <string>

#include "starling/base/types.h"

namespace starling::local {

/// Throws Error when a process limit (RLIMIT_FSIZE, RLIMIT_AS) is too low for the shared regions of `ranks`
/// ranks; it names the limit, its value and the value needed. Exceeding RLIMIT_FSIZE would kill the process.
void check_memory_limits(Rank ranks);

/// What a failed call that opens a descriptor has met: the system's reason, and where that is RLIMIT_NOFILE,
/// the limit and how many open files the rendezvous of `ranks` ranks needs.
std::string open_failure(int reason, Rank ranks);

}  // namespace starling::local
