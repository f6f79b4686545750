#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/os/program.h"

namespace starling::tool {

/// run_program that throws Error when it fails, with its last line on standard error, and when the
/// time is over.
ProgramRun run_successfully(const std::vector<std::string>& words, const std::vector<int>& cpus,
                            std::chrono::seconds limit);

/// This program's own file.
std::string own_path();

/// The path of a program that was built beside this one; nothing where it was not.
std::optional<std::string> beside_us(const std::string& name);

}  // namespace starling::tool
