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
  int status = 0;  // as returned by waitpid

  bool failed() const { return status != 0; }
  /// The signal that ended the process; 0 if none.
  int signal() const;
  /// The exit status, or 128 + signal as shells report it.
  int exit_status() const;
  /// "exit status 3" or "SIGSEGV".
  std::string text() const;
};

/// The signal's name, such as "SIGTERM".
std::string signal_name(int signal);

/// The file to execute: a path is kept, a bare name is searched in `path` (the value of $PATH; may be null).
/// Throws InvalidArgument if the file is missing or not executable.
std::string find_program(const std::string& name, const char* path);

/// Describes a process to start.
struct ChildPlan {
  std::string file;
  std::vector<std::string> arguments;    // the first is the name as typed
  std::function<int()> body;             // called in a fork of this process, instead of running the file
  std::vector<std::string> environment;  // NAME=VALUE
  std::vector<int> cpus;                 // empty: all
  int input = 0, output = 1, error = 2;  // these become descriptors 0, 1, 2 and must not overlap with them
  bool own_group = true;
  bool default_sigpipe = true;
  sigset_t mask{};
  rlimit files{};
};

/// Starts a process that is killed when the calling thread dies. Throws Error if the program cannot be
/// executed. A child that runs `body` instead of a program has the descriptors that a program would inherit
/// and its own environment in /proc, and ends without running this process's destructors.
pid_t start_child(const ChildPlan& plan);

}  // namespace starling
