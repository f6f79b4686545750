#pragma once

#include <string>
#include <sys/types.h>

#include "starling/base/os/descriptor.h"

namespace starling::launch {

/// A helper process that cleans up if the launcher is killed by SIGKILL. The kernel then kills the ranks
/// (PR_SET_PDEATHSIG) but not their children; the guard kills all processes with the job's mark in their
/// environment.
class Guard {
 public:
  /// `assignment` is the mark: STARLING_JOB=token, or STARLING_PART=name for the part of a job on one host.
  explicit Guard(const std::string& assignment);
  /// Dismisses the guard: it kills nothing.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  Descriptor control_;
};

}  // namespace starling::launch
