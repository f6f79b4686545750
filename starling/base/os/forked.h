#pragma once

#include <functional>
#include <string>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// Writes what this process has buffered for its standard streams: a fork would write it again.
void flush_output();

/// In a fork that is to be a process of its own: closes the descriptors that exec would close, takes this
/// environment, calls `body` and ends with what it returns (2 where it throws).
[[noreturn]] void run_forked(const std::function<int()>& body, const std::vector<std::string>& environment);

}  // namespace starling
