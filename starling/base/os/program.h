#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/os/child.h"

namespace starling {

/// The result of a program.
struct ProgramRun {
  Ending ending;
  bool in_time = true;  // false: the program was ended at its time limit
  double seconds = 0;
  std::string out;
  std::string err;

  bool succeeded() const { return in_time && !ending.failed(); }
};

/// Runs a command (the first word is a path) without a shell and with empty input on `cpus` (empty: all), and
/// waits for its end, or ends it at the time limit. Throws InvalidArgument if it cannot be executed.
ProgramRun run_program(const std::vector<std::string>& words, std::chrono::seconds limit,
                       const std::vector<int>& cpus = {});

/// The path of a program found in $PATH; empty if there is none.
std::optional<std::string> in_path(const std::string& name);

}  // namespace starling
