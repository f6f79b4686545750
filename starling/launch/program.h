#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "starling/launch/child.h"

namespace starling::launch {

/// What a program left behind.
struct ProgramRun {
  Ending ending;
  bool in_time = true;  // false: it was ended because its time was over
  double seconds = 0;
  std::string out;
  std::string err;

  bool succeeded() const { return in_time && !ending.failed(); }
};

/// Runs `words` (the first is a path) without a shell and with nothing to read, on `cpus` (empty: all), and
/// waits. It is not running any more when this returns. Throws InvalidArgument when it cannot be executed.
ProgramRun run_program(const std::vector<std::string>& words, std::chrono::seconds limit,
                       const std::vector<int>& cpus = {});

/// The path of a program in $PATH; nothing where there is none.
std::optional<std::string> in_path(const std::string& name);

}  // namespace starling::launch
