#pragma once

#include <csignal>
#include <sys/resource.h>

#include "starling/base/os/descriptor.h"

namespace starling::launch {

/// Puts this process into launcher mode, until the object is destroyed: signals arrive through a file
/// descriptor, orphans of the ranks become our children, and the limit on open files is raised. The
/// destructor restores everything.
class LauncherMode {
 public:
  /// `files`: the number of file descriptors that the job needs.
  explicit LauncherMode(rlim_t files);
  ~LauncherMode();
  LauncherMode(const LauncherMode&) = delete;
  LauncherMode& operator=(const LauncherMode&) = delete;

  /// A nonblocking signalfd of SIGCHLD and all signals that are forwarded to the ranks.
  int signals() const { return signals_.get(); }
  const sigset_t& old_mask() const { return old_mask_; }
  const rlimit& old_files() const { return old_files_; }
  bool sigpipe_was_default() const { return old_sigpipe_.sa_handler == SIG_DFL; }

 private:
  Descriptor signals_;
  sigset_t old_mask_{};
  struct sigaction old_sigpipe_ {};
  struct sigaction old_sigchld_ {};
  rlimit old_files_{};
  int was_subreaper_ = 0;
};

}  // namespace starling::launch
