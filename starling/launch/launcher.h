#pragma once

#include <optional>
#include <string>
#include <vector>

#include "starling/base/types.h"

namespace starling::launch {

/// A host of a job: its launcher is started through another program, such as ssh, and told what to do.
struct HostPlan {
  std::string name;
  Rank ranks = 1;        // there
  std::string line;      // for its shell: starts its launcher
  std::string greeting;  // for that one's standard input; see launch/wire.h
};

/// The ranks of this launcher are some of a job over several hosts.
struct JobPart {
  Rank first = 0;  // the rank of the first here
  Rank size = 1;   // of the whole job
};

struct LaunchOptions {
  Rank ranks = 1;
  std::vector<std::string> command;      // program and arguments
  std::vector<HostPlan> hosts;           // where ranks run; `command HOST LINE` leads there. None: here
  std::optional<JobPart> part;           // standard input brings orders, output takes records
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
