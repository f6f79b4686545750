#include "tool/bench_program.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <poll.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/launch/child.h"
#include "starling/launch/environment.h"
#include "starling/launch/fd.h"

namespace starling::tool {
namespace {

using launch::Fd;

// A file without a name: unlike a pipe it never fills up, so nobody needs to read while the program runs.
Fd nameless_file() {
  Fd file(memfd_create("starling-bench", MFD_CLOEXEC));
  if (!file) throw Error(fmt::format("cannot make a file in memory: {}", std::strerror(errno)));
  return file;
}

std::string content(const Fd& file) {
  std::string text;
  std::array<char, 65536> buffer;
  ssize_t got = 0;
  while ((got = pread(file.get(), buffer.data(), buffer.size(), static_cast<off_t>(text.size()))) > 0)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  return text;
}

std::string last_line(std::string text) {
  while (!text.empty() && std::string_view("\n\r -").find(text.back()) != std::string_view::npos)
    text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

bool ends_within(pid_t pid, std::chrono::milliseconds time) {
  const Fd watch(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!watch) return false;
  pollfd end{watch.get(), POLLIN, 0};
  return poll(&end, 1, static_cast<int>(time.count())) == 1;
}

}  // namespace

ProgramRun run_program(const std::vector<std::string>& words, const std::vector<int>& cpus,
                       std::chrono::seconds limit) {
  const Fd input(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd output = nameless_file();
  const Fd error = nameless_file();
  launch::ChildPlan plan;
  plan.file = words.front();
  plan.arguments = words;
  plan.environment = launch::Environment().entries();
  plan.cpus = cpus;
  plan.input = input.get();
  plan.output = output.get();
  plan.error = error.get();
  plan.own_group = false;  // Ctrl-C reaches it too
  sigemptyset(&plan.mask);
  getrlimit(RLIMIT_NOFILE, &plan.files);

  const auto start = std::chrono::steady_clock::now();
  const pid_t pid = launch::start_child(plan);
  const bool in_time = ends_within(pid, limit);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!in_time) {
    kill(pid, SIGTERM);  // first, so that mpirun can end its ranks
    if (!ends_within(pid, std::chrono::seconds(5))) kill(pid, SIGKILL);
  }
  launch::Ending ending;
  while (waitpid(pid, &ending.status, 0) < 0 && errno == EINTR) {
  }
  const std::string name = std::filesystem::path(words.front()).filename().string();
  if (!in_time) throw Error(fmt::format("{} took longer than {} s", name, limit.count()));
  if (ending.failed()) {
    const std::string said = last_line(content(error));
    throw Error(said.empty() ? fmt::format("{} failed: {}", name, ending.text()) : said);
  }
  return {seconds, content(output)};
}

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::optional<std::string> beside_us(const std::string& name) {
  const auto file = std::filesystem::path(own_path()).parent_path() / name;
  if (access(file.c_str(), X_OK) != 0) return std::nullopt;
  return file.string();
}

std::optional<std::string> in_path(const std::string& name) {
  try {
    return launch::find_program(name, std::getenv("PATH"));
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

}  // namespace starling::tool
