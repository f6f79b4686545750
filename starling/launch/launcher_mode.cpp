#include "starling/launch/launcher_mode.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include "starling/base/error.h"
#include "starling/base/system_error.h"

namespace starling::launch {

LauncherMode::LauncherMode(rlim_t files) {
  // If descriptors 0, 1 or 2 are closed, our pipes must not take their numbers.
  for (int fd = 0; fd >= 0 && fd <= 2;) {
    fd = open("/dev/null", O_RDWR);
    if (fd > 2) close(fd);
  }
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP})
    sigaddset(&taken, signal);
  sigprocmask(SIG_BLOCK, &taken, &old_mask_);
  signals_ = Descriptor(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) throw SystemError("cannot receive signals", errno);
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &old_sigpipe_);
  action.sa_handler = SIG_DFL;  // an inherited SIG_IGN would discard exit statuses
  sigaction(SIGCHLD, &action, &old_sigchld_);
  prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  getrlimit(RLIMIT_NOFILE, &old_files_);
  rlimit raised = old_files_;
  raised.rlim_cur = std::max(raised.rlim_cur, std::min(raised.rlim_max, files));
  setrlimit(RLIMIT_NOFILE, &raised);
}

LauncherMode::~LauncherMode() {
  setrlimit(RLIMIT_NOFILE, &old_files_);
  prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_);
  sigaction(SIGCHLD, &old_sigchld_, nullptr);
  sigaction(SIGPIPE, &old_sigpipe_, nullptr);
  // A signal that came too late for the job must not reach the caller.
  signalfd_siginfo late;
  while (read(signals_.get(), &late, sizeof late) > 0) {
  }
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

}  // namespace starling::launch
