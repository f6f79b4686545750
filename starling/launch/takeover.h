#pragma once

#include <csignal>
#include <sys/resource.h>

#include "starling/launch/fd.h"

namespace starling::launch {

/// Makes this process a launcher for as long as it lives: signals come through a file descriptor, orphans of
/// our ranks become our children, and there are files enough. Everything is put back at the end.
class Takeover {
 public:
  /// `files`: how many file descriptors the job will need.
  explicit Takeover(rlim_t files);
  ~Takeover();
  Takeover(const Takeover&) = delete;
  Takeover& operator=(const Takeover&) = delete;

  /// A signalfd that does not block: SIGCHLD and everything that is passed on to the ranks.
  int signals() const { return signals_.get(); }
  const sigset_t& old_mask() const { return old_mask_; }
  const rlimit& old_files() const { return old_files_; }
  bool sigpipe_was_default() const { return old_sigpipe_.sa_handler == SIG_DFL; }

 private:
  Fd signals_;
  sigset_t old_mask_{};
  struct sigaction old_sigpipe_ {};
  struct sigaction old_sigchld_ {};
  rlimit old_files_{};
  int was_subreaper_ = 0;
};

}  // namespace starling::launch
