#pragma once

#include <cstdint>
#include <string>

#include "starling/base/types.h"

namespace starling::fabric::local {

/// Throws Error if a process limit (RLIMIT_FSIZE, RLIMIT_AS) is too low for the shared regions of `ranks`
/// ranks, and names the limit, its value and the value needed. Exceeding RLIMIT_FSIZE would kill the process.
void check_memory_limits(Rank ranks);

/// The text of a failed attempt to open a descriptor: the system's reason; for EMFILE also the limit and how
/// many open files a rendezvous of `ranks` ranks needs.
std::string open_failure(int reason, Rank ranks);

}  // namespace starling::fabric::local
