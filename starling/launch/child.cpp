#include "starling/launch/child.h"

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
#include "starling/launch/fd.h"

namespace starling::launch {
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

// Between fork and exec: system calls only. Tells errno through `report`, which exec closes.
[[noreturn]] void become(const ChildPlan& plan, char** arguments, char** environment, const CpuSet& cpus,
                         pid_t launcher, int report) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(127);  // it died before the line above
  if (plan.own_group) setpgid(0, 0);
  setrlimit(RLIMIT_NOFILE, &plan.files);
  if (plan.default_sigpipe) signal(SIGPIPE, SIG_DFL);
  bool fine = cpus.set == nullptr || sched_setaffinity(0, cpus.bytes, cpus.set.get()) == 0;
  fine = fine && dup2(plan.input, 0) >= 0 && dup2(plan.output, 1) >= 0 && dup2(plan.error, 2) >= 0;
  if (fine) {
    sigprocmask(SIG_SETMASK, &plan.mask, nullptr);
    execve(plan.file.c_str(), arguments, environment);
  }
  const int error = errno;
  if (write(report, &error, sizeof error) < 0) _exit(126);
  _exit(127);
}

enum class Verdict { fine, missing, directory, not_executable };

Verdict judge(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) return errno == EACCES ? Verdict::not_executable : Verdict::missing;
  if (S_ISDIR(status.st_mode)) return Verdict::directory;
  return access(file.c_str(), X_OK) == 0 ? Verdict::fine : Verdict::not_executable;
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
    switch (judge(name)) {
      case Verdict::fine:
        return name;
      case Verdict::missing:
        throw InvalidArgument(fmt::format("program '{}' does not exist", name));
      case Verdict::directory:
        throw InvalidArgument(fmt::format("program '{}' is a directory", name));
      case Verdict::not_executable:
        refused = name;
    }
  } else {
    const std::string_view folders = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
    for (std::size_t begin = 0; begin <= folders.size();) {
      const std::size_t end = std::min(folders.find(':', begin), folders.size());
      const std::string folder(folders.substr(begin, end - begin));
      std::string file = (folder.empty() ? "." : folder) + "/" + name;
      const Verdict verdict = judge(file);
      if (verdict == Verdict::fine) return file;
      if (verdict == Verdict::not_executable && refused.empty()) refused = file;
      begin = end + 1;
    }
    if (refused.empty() && judge(name) != Verdict::missing)
      throw InvalidArgument(
          fmt::format("program '{}' is not in PATH; for the one in this folder say ./{}", name, name));
    if (refused.empty()) throw InvalidArgument(fmt::format("program '{}' is not in PATH", name));
  }
  throw InvalidArgument(fmt::format("program '{}' is not executable", refused));
}

pid_t start_child(const ChildPlan& plan) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const Fd report(ends[0]);
  Fd child_end(ends[1]);
  const auto arguments = pointers(plan.arguments);
  const auto environment = pointers(plan.environment);
  const CpuSet cpus(plan.cpus);
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(errno)));
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

}  // namespace starling::launch
