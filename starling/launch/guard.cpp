#include "starling/launch/guard.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "starling/base/error.h"
#include "starling/launch/processes.h"

namespace starling::launch {
namespace {

constexpr char kGoHome = 'x';

[[noreturn]] void stand_guard(int leash, const std::string& assignment) {
  // Out of the way of the terminal's signals, and without the job's files: nobody may wait for a pipe because
  // of us.
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  prctl(PR_SET_NAME, "flock-guard");
  if (chdir("/") != 0) _exit(1);
  dup2(leash, 0);
  syscall(SYS_close_range, 1, UINT_MAX, 0);
  char word = 0;
  ssize_t got = 0;
  while ((got = read(0, &word, 1)) < 0 && errno == EINTR) {
  }
  if (got == 1) _exit(0);
  // Processes may fork while we look: two clean rounds, or a minute, end it.
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
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  Fd read_end(ends[0]);
  leash_ = Fd(ends[1]);
  pid_ = fork();
  if (pid_ < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (pid_ == 0) stand_guard(read_end.get(), assignment);
}

Guard::~Guard() {
  // A failed write means that somebody killed it.
  if (write(leash_.get(), &kGoHome, 1) == 1)
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

}  // namespace starling::launch
