#include "starling/launch/guard.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "starling/base/error.h"
#include "starling/base/os/processes.h"
#include "starling/base/system_error.h"

namespace starling::launch {
namespace {

constexpr char kDismissed = 'x';

[[noreturn]] void run_guard(int control, const std::string& assignment) {
  // Detaches from the terminal's signals and closes the job's files, so that no reader waits for a pipe that
  // only the guard holds open.
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  prctl(PR_SET_NAME, "flock-guard");
  if (chdir("/") != 0) _exit(1);
  dup2(control, 0);
  syscall(SYS_close_range, 1, UINT_MAX, 0);
  char message = 0;
  ssize_t got = 0;
  while ((got = read(0, &message, 1)) < 0 && errno == EINTR) {
  }
  if (got == 1) _exit(0);
  // Processes may fork meanwhile: ends after two clean scans, or a minute.
  for (int clean = 0, round = 0; clean < 2 && round < 6000; ++round) {
    const auto found = processes_with(assignment);
    for (const pid_t pid : found) kill(pid, SIGKILL);
    clean = found.empty() ? clean + 1 : 0;
    const timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
  _exit(0);
}

}  // namespace

Guard::Guard(const std::string& assignment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot create a pipe", errno);
  Descriptor read_end(ends[0]);
  control_ = Descriptor(ends[1]);
  pid_ = fork();
  if (pid_ < 0) throw SystemError("cannot start a process", errno);
  if (pid_ == 0) run_guard(read_end.get(), assignment);
}

Guard::~Guard() {
  // A failed write means that the guard was killed.
  if (write(control_.get(), &kDismissed, 1) == 1)
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

}  // namespace starling::launch
