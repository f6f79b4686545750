#pragma once

#include <functional>
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

/// What becomes of the other ranks when one fails.
enum class OnFailure {
  as_told,  // they are stopped, unless their flock has told us that it continues (base/launcher_notice.h)
  stop,
  go_on,
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
  bool append_logs = false;              // to those that are there
  std::optional<double> timeout;         // seconds
  OnFailure on_failure = OnFailure::as_told;
  bool continues = false;   // as if its flock had told so already
  std::string after_death;  // said of a rank that dies while the others continue
  double grace = 5;         // seconds between SIGTERM and SIGKILL, where the launcher ends the ranks
  double signal_grace =
      30;             // the same where it was itself sent SIGTERM, SIGHUP or SIGQUIT: time to save work
  std::string token;  // STARLING_JOB; a new one unless given
  std::function<void(Rank)> on_exit;  // told of every rank that has ended, however it did
};

/// Runs a job of n processes to its end and returns the exit status to leave with: the one of the rank that
/// failed first (128 + signal for a signal), 124 after the timeout, 0 when all went well, or one where the
/// flock continues after deaths. Throws InvalidArgument before anything was started when the job cannot be.
///
/// The process becomes the launcher: it adopts orphans, takes the terminal's signals and reaps all of its
/// children. Call it from a program's only thread.
int launch(const LaunchOptions& options);

/// The same; a job that failed, and was not ended by the user or the timeout, is started again as often as
/// `restarts` says. `plan` makes the options of the k-th attempt, from 0; all attempts have as many ranks.
int launch(int restarts, const std::function<LaunchOptions(int attempt)>& plan);

}  // namespace starling::launch
