#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace starling::tool {

/// What a program that ran to its end left behind.
struct ProgramRun {
  double seconds = 0;
  std::string out;
};

/// Runs `words` (the first is a path) with nothing to read, on `cpus` (empty: all), and waits. Throws Error
/// when it fails, with its last line on standard error, and when the time is over; it is not running then any
/// more.
ProgramRun run_program(const std::vector<std::string>& words, const std::vector<int>& cpus,
                       std::chrono::seconds limit);

/// This program's own file.
std::string own_path();

/// The path of a program that was built beside this one; nothing where it was not.
std::optional<std::string> beside_us(const std::string& name);
/// The path of a program in PATH.
std::optional<std::string> in_path(const std::string& name);

}  // namespace starling::tool
