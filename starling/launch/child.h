#pragma once

#include <csignal>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <vector>

namespace starling::launch {

/// How a process ended.
struct Ending {
  int status = 0;  // as waitpid gives it

  bool failed() const { return status != 0; }
  /// 0 unless a signal ended it.
  int signal() const;
  /// As shells count: 128 + signal.
  int exit_status() const;
  /// "exit status 3" or "SIGSEGV".
  std::string text() const;
};

/// "SIGTERM".
std::string signal_name(int signal);

/// The file that would run: a path as it is, a bare name searched in `path` (may be null, as in $PATH).
/// Throws InvalidArgument when it is missing or cannot be executed.
std::string find_program(const std::string& name, const char* path);

/// Everything about a process to start.
struct ChildPlan {
  std::string file;
  std::vector<std::string> arguments;    // the first is the name as typed
  std::vector<std::string> environment;  // NAME=VALUE
  std::vector<int> cpus;                 // empty: all
  int input = 0, output = 1, error = 2;  // become 0, 1, 2; none of them may be another's target
  bool own_group = true;
  bool default_sigpipe = true;
  sigset_t mask{};
  rlimit files{};
};

/// Starts it, to be killed when this thread dies; throws Error when the program cannot be executed.
pid_t start_child(const ChildPlan& plan);

}  // namespace starling::launch
