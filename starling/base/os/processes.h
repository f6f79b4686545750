#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// The living descendants of `root`, parents first, without those in `without` and their descendants. An
/// orphan counts as a descendant of the subreaper that adopted it.
std::vector<pid_t> descendants(pid_t root, const std::vector<pid_t>& without = {});

/// All living processes that were started with NAME=VALUE in their environment.
std::vector<pid_t> processes_with(const std::string& assignment);

/// The signal (such as SIGSTOP) that has suspended a child of this process; 0 if it is not suspended.
int suspending_signal(pid_t child);

/// "4711 (python3)", for messages.
std::string describe_process(pid_t pid);

}  // namespace starling
