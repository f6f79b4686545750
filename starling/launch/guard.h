#pragma once

#include <string>
#include <sys/types.h>

#include "starling/launch/fd.h"

namespace starling::launch {

/// A process that outlives a launcher's SIGKILL. The kernel then kills the ranks (PR_SET_PDEATHSIG) but not
/// what they started; the guard kills everything that carries the job's mark in its environment.
class Guard {
 public:
  /// `assignment` is the mark: STARLING_JOB=token, or of one host's part STARLING_PART=name.
  explicit Guard(const std::string& assignment);
  /// Sends it home: nothing is killed.
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  Fd leash_;
};

}  // namespace starling::launch
