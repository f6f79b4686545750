#include "starling/base/os/child.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/base/os/descriptor.h"
#include "starling/base/os/forked.h"
#include "starling/base/system_error.h"

namespace starling {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

struct CpuSet {
  explicit CpuSet(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    const std::size_t limit = static_cast<std::size_t>(cpus.back()) + 1;
    set.reset(CPU_ALLOC(limit));
    bytes = CPU_ALLOC_SIZE(limit);
    CPU_ZERO_S(bytes, set.get());
    for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.get());
  }
  struct Free {
    void operator()(cpu_set_t* done) const { CPU_FREE(done); }
  };
  std::unique_ptr<cpu_set_t, Free> set;
  std::size_t bytes = 0;
};

// Runs between fork and exec: system calls only. Returns false and sets errno on failure.
bool prepare(const ChildPlan& plan, const CpuSet& cpus, pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(127);  // the launcher died before prctl
  if (plan.own_group) setpgid(0, 0);
  setrlimit(RLIMIT_NOFILE, &plan.files);
  if (plan.default_sigpipe) signal(SIGPIPE, SIG_DFL);
  if (cpus.set != nullptr && sched_setaffinity(0, cpus.bytes, cpus.set.get()) != 0) return false;
  if (dup2(plan.input, 0) < 0 || dup2(plan.output, 1) < 0 || dup2(plan.error, 2) < 0) return false;
  return sigprocmask(SIG_SETMASK, &plan.mask, nullptr) == 0;
}

// Runs the program in the child. On failure it sends errno through `report`, which exec closes (a fork that
// runs `body` closes it itself).
[[noreturn]] void become(const ChildPlan& plan, char** arguments, char** environment, const CpuSet& cpus,
                         pid_t launcher, int report) {
  if (prepare(plan, cpus, launcher)) {
    if (plan.body) run_forked(plan.body, plan.environment);
    execve(plan.file.c_str(), arguments, environment);
  }
  const int error = errno;
  if (write(report, &error, sizeof error) < 0) _exit(126);
  _exit(127);
}

enum class Executability { fine, missing, directory, not_executable };

Executability executability(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0)
    return errno == EACCES ? Executability::not_executable : Executability::missing;
  if (S_ISDIR(status.st_mode)) return Executability::directory;
  return access(file.c_str(), X_OK) == 0 ? Executability::fine : Executability::not_executable;
}

}  // namespace

int Ending::signal() const {
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int Ending::exit_status() const {
  return signal() != 0 ? 128 + signal() : WEXITSTATUS(status);
}

std::string Ending::text() const {
  if (signal() == 0) return fmt::format("exit status {}", exit_status());
  return signal_name(signal()) + (WCOREDUMP(status) ? " (core dumped)" : "");
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

std::string find_program(const std::string& name, const char* path) {
  if (name.empty()) throw InvalidArgument("the program's name is empty");
  std::string refused;
  if (name.find('/') != std::string::npos) {
    switch (executability(name)) {
      case Executability::fine:
        return name;
      case Executability::missing:
        throw InvalidArgument(fmt::format("program '{}' does not exist", name));
      case Executability::directory:
        throw InvalidArgument(fmt::format("program '{}' is a directory", name));
      case Executability::not_executable:
        refused = name;
    }
  } else {
    const std::string_view folders = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
    for (std::size_t begin = 0; begin <= folders.size();) {
      const std::size_t end = std::min(folders.find(':', begin), folders.size());
      const std::string folder(folders.substr(begin, end - begin));
      std::string file = (folder.empty() ? "." : folder) + "/" + name;
      const Executability result = executability(file);
      if (result == Executability::fine) return file;
      if (result == Executability::not_executable && refused.empty()) refused = file;
      begin = end + 1;
    }
    if (refused.empty() && executability(name) != Executability::missing)
      throw InvalidArgument(
          fmt::format("program '{}' is not in PATH; use ./{} for the one in this folder", name, name));
    if (refused.empty()) throw InvalidArgument(fmt::format("program '{}' is not in PATH", name));
  }
  throw InvalidArgument(fmt::format("program '{}' is not executable", refused));
}

pid_t start_child(const ChildPlan& plan) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot create a pipe", errno);
  const Descriptor report(ends[0]);
  Descriptor child_end(ends[1]);
  const auto arguments = pointers(plan.arguments);
  const auto environment = pointers(plan.environment);
  const CpuSet cpus(plan.cpus);
  const pid_t launcher = getpid();
  if (plan.body) flush_output();
  const pid_t pid = fork();
  if (pid < 0) throw SystemError("cannot start a process", errno);
  if (pid == 0)
    become(plan, const_cast<char**>(arguments.data()), const_cast<char**>(environment.data()), cpus, launcher,
           child_end.get());
  child_end.reset();
  int error = 0;
  ssize_t got = 0;
  while ((got = read(report.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got <= 0) return pid;
  waitpid(pid, nullptr, 0);
  const char* hint = "";
  if (error == ENOEXEC) hint = " (a script needs a first line such as #!/bin/sh)";
  if (error == ENOENT) hint = " (the interpreter that it names is missing)";
  throw InvalidArgument(fmt::format("cannot execute '{}': {}{}", plan.file, std::strerror(error), hint));
}

}  // namespace starling
