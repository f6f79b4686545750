#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace starling::launch {

/// The living processes below `root`, parents first. A process that lost its parent counts where the kernel
/// put it: below the nearest ancestor that is a subreaper. Without these, and what is below them.
std::vector<pid_t> descendants(pid_t root, const std::vector<pid_t>& without = {});

/// The living processes that were started with NAME=VALUE in their environment, wherever they are.
std::vector<pid_t> processes_with(const std::string& assignment);

/// "4711 (python3)", for messages.
std::string describe_process(pid_t pid);

}  // namespace starling::launch
