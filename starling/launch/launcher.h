#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/types.h"

namespace starling::launch {

/// A host of a job, whose launcher is started through another program, such as ssh.
struct HostPlan {
  std::string name;
  Rank ranks = 1;             // on this host
  std::string line;           // shell command that starts its launcher
  std::string start_message;  // for the launcher's standard input; see launch/host_protocol.h
};

/// The part of a multi-host job that this launcher runs.
struct JobPart {
  Rank first = 0;  // the first rank of this part
  Rank size = 1;   // ranks of the whole job
};

/// What happens to the other ranks when one fails.
enum class OnFailure {
  as_announced,  // stop them after the grace period, unless their flock announces that it continues
                 // (base/launcher_notice.h)
  stop,          // at once
  keep_going,
};

struct LaunchOptions {
  Rank ranks = 1;
  std::vector<std::string> command;      // program and arguments
  std::function<int()> body;             // instead of the command: ranks are forks that return its status
  std::vector<HostPlan> hosts;           // if not empty, `command HOST LINE` starts their launchers
  std::optional<JobPart> part;           // set on a host: requests on stdin, records on stdout
  std::vector<std::string> environment;  // NAME=VALUE, in addition to this process's
  bool bind = false;                     // pin every rank to its share of the CPUs
  bool share_output = false;             // ranks write to our streams and print their own errors
  std::string log_dir;                   // for files rank-K.log; empty: none
  bool append_logs = false;              // to existing log files
  std::optional<double> timeout;         // seconds
  OnFailure on_failure = OnFailure::as_announced;
  bool continues = false;     // the flock continues after failures, as if announced
  std::string noun = "rank";  // what messages call a rank
  std::string after_death;    // added to the message when a rank dies and the others continue
  // Seconds that ranks have to end by themselves, or to announce that they continue, after one of them has
  // failed; and again between SIGTERM and SIGKILL when the launcher ends them.
  double grace = 5;
  double signal_grace = 30;  // the same when the launcher got SIGTERM, SIGHUP or SIGQUIT: time to save work
  std::string token;         // STARLING_JOB; empty: a new one
  std::function<void(Rank)> on_exit;  // called for every rank that has ended
};

/// Runs a job of n processes to its end and returns the exit status for this program: that of the rank that
/// failed first (128 + signal for a signal), 124 after the timeout, 0 if all ranks succeeded, or at least one
/// in a flock that continues after failures. Throws InvalidArgument, before anything is started, if the
/// options are invalid.
///
/// The process becomes the launcher: it adopts orphans, handles the terminal's signals and reaps all of its
/// children. The program must be single-threaded.
///
/// With a `body`, ranks share what this process has loaded and read already, which may save seconds;
/// libraries must not have started threads that they do not restart after a fork.
int launch(const LaunchOptions& options);

/// The same, but restarts a failed job, unless the user or the timeout has ended it, up to `restarts` times.
/// `plan` makes the options of the k-th attempt, from 0; the number of ranks must not change.
int launch(int restarts, const std::function<LaunchOptions(int attempt)>& plan);

}  // namespace starling::launch
