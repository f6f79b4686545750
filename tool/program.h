#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/os/program.h"

namespace starling::tool {

/// Like run_program, but throws Error if the program fails, with its last line on standard error, or if it
/// reaches the time limit.
ProgramRun run_successfully(const std::vector<std::string>& words, const std::vector<int>& cpus,
                            std::chrono::seconds limit);

/// The path of this program's file.
std::string own_path();

/// The path of a program that was built beside this one; empty if it was not.
std::optional<std::string> beside_us(const std::string& name);

}  // namespace starling::tool
