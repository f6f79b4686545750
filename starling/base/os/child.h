#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// How a process ended.
struct Ending {
  int status = 0;  // as waitpid gives it

  bool failed() const { return status != 0; }
  /// The signal that ended it; 0 if none.
  int signal() const;
  /// As in shells: 128 + signal.
  int exit_status() const;
  /// "exit status 3" or "SIGSEGV".
  std::string text() const;
};

/// "SIGTERM".
std::string signal_name(int signal);

/// The file to execute: a path is kept, a bare name is searched in `path` (the value of $PATH; may be null).
/// Throws InvalidArgument if it is missing or not executable.
std::string find_program(const std::string& name, const char* path);

/// The description of a process to start.
struct ChildPlan {
  std::string file;
  std::vector<std::string> arguments;    // the first is the name as typed
  std::function<int()> body;             // called in a fork of this process, instead of running the file
  std::vector<std::string> environment;  // NAME=VALUE
  std::vector<int> cpus;                 // empty: all
  int input = 0, output = 1, error = 2;  // become descriptors 0, 1, 2; must not overlap with those
  bool own_group = true;
  bool default_sigpipe = true;
  sigset_t mask{};
  rlimit files{};
};

/// Starts a process that is killed when the calling thread dies. Throws Error if the program cannot be
/// executed. A child that runs `body` has only the descriptors that a program would inherit, /proc shows its
/// own environment, and it ends when `body` returns, without this process's destructors.
pid_t start_child(const ChildPlan& plan);

}  // namespace starling
