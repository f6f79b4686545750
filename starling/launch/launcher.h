#pragma once

#include <optional>
#include <string>
#include <vector>

#include "starling/base/types.h"

namespace starling::launch {

struct LaunchOptions {
  Rank ranks = 1;
  std::vector<std::string> command;      // program and arguments
  std::vector<std::string> environment;  // NAME=VALUE, beside this process's own
  bool bind = false;                     // pin every rank to its share of the CPUs
  bool share_output = false;             // ranks write to our own streams, and say themselves why they fail
  std::string log_dir;                   // rank-K.log files go there; empty: none
  std::optional<double> timeout;         // seconds
  bool stop_on_failure = true;
  bool one_is_enough = false;  // a job went well if one of its ranks did
  double grace = 5;            // seconds between SIGTERM and SIGKILL
  std::string token;           // STARLING_JOB; a new one unless given
};

/// Runs a job of n processes to its end and returns the exit status to leave with: the one of the rank that
/// failed first (128 + signal for a signal), 124 after the timeout, 0 when all went well. Throws
/// InvalidArgument before anything was started when the job cannot be.
///
/// The process becomes the launcher: it adopts orphans, takes the terminal's signals and reaps all of its
/// children. Call it from a program's only thread.
int launch(const LaunchOptions& options);

}  // namespace starling::launch
