#include "starling/base/os/program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/environment.h"
#include "starling/base/error.h"
#include "starling/base/os/descriptor.h"
#include "starling/base/stopwatch.h"

namespace starling {
namespace {

// An anonymous file for the output: unlike a pipe it never fills up, so it need not be read while the program
// runs.
Descriptor nameless_file() {
  Descriptor file(memfd_create("starling-program", MFD_CLOEXEC));
  if (!file) throw Error(fmt::format("cannot create a file in memory: {}", std::strerror(errno)));
  return file;
}

std::string content(const Descriptor& file) {
  std::string text;
  std::array<char, 65536> buffer;
  ssize_t got = 0;
  while ((got = pread(file.get(), buffer.data(), buffer.size(), static_cast<off_t>(text.size()))) > 0)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  return text;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

bool ends_within(pid_t pid, std::chrono::milliseconds time) {
  const Descriptor watch(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!watch) return false;
  pollfd end{watch.get(), POLLIN, 0};
  return poll(&end, 1, static_cast<int>(std::min<std::int64_t>(time.count(), INT_MAX))) == 1;
}

}  // namespace

ProgramRun run_program(const std::vector<std::string>& words, std::chrono::seconds limit,
                       const std::vector<int>& cpus) {
  const Descriptor input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor output = nameless_file();
  const Descriptor error = nameless_file();
  ChildPlan plan;
  plan.file = words.front();
  plan.arguments = words;
  plan.environment = own_environment();
  plan.cpus = cpus;
  plan.input = input.get();
  plan.output = output.get();
  plan.error = error.get();
  plan.own_group = false;  // Ctrl-C reaches it too
  sigemptyset(&plan.mask);
  getrlimit(RLIMIT_NOFILE, &plan.files);

  ProgramRun run;
  const auto start = std::chrono::steady_clock::now();
  const pid_t pid = start_child(plan);
  run.in_time = ends_within(pid, limit);
  run.seconds = seconds_since(start);
  if (!run.in_time) {
    kill(pid, SIGTERM);  // first, so that the program can end its own children
    if (!ends_within(pid, std::chrono::seconds(5))) kill(pid, SIGKILL);
  }
  while (waitpid(pid, &run.ending.status, 0) < 0 && errno == EINTR) {
  }
  run.out = content(output);
  run.err = content(error);
  return run;
}

std::optional<std::string> in_path(const std::string& name) {
  try {
    return find_program(name, environment::kPath.value());
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

}  // namespace starling
