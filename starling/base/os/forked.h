#pragma once

#include <functional>
#include <string>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// Flushes the buffers of this process's standard streams, so that a forked child does not write them a
/// second time.
void flush_output();

/// Turns a forked child into a process of its own: closes the descriptors that exec would close, sets the
/// environment, calls `body` and exits with its result (2 if it throws).
[[noreturn]] void run_forked(const std::function<int()>& body, const std::vector<std::string>& environment);

}  // namespace starling
