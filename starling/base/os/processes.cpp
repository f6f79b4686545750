#include "starling/base/os/processes.h"

#include <algorithm>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>

#include "starling/base/os/descriptor.h"

namespace starling {
namespace {

// Empty if the process is gone or belongs to another user.
std::string read_proc(pid_t pid, const char* file) {
  const Descriptor fd(open(("/proc/" + std::to_string(pid) + "/" + file).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (!fd) return text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(fd.get(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  return text;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  DIR* directory = opendir("/proc");
  if (directory == nullptr) return pids;
  while (const dirent* entry = readdir(directory)) {
    char* end = nullptr;
    const long pid = std::strtol(entry->d_name, &end, 10);
    if (pid > 0 && *end == '\0') pids.push_back(static_cast<pid_t>(pid));
  }
  closedir(directory);
  return pids;
}

// Empty if the process is gone or a zombie.
std::optional<pid_t> parent_of(pid_t pid) {
  const std::string stat = read_proc(pid, "stat");
  const std::size_t name_end = stat.rfind(')');  // a name may contain anything, even parentheses
  if (name_end == std::string::npos || name_end + 4 > stat.size()) return std::nullopt;
  const char state = stat[name_end + 2];
  if (state == 'Z' || state == 'X') return std::nullopt;
  return static_cast<pid_t>(std::strtol(stat.c_str() + name_end + 4, nullptr, 10));
}

}  // namespace

std::vector<pid_t> descendants(pid_t root, const std::vector<pid_t>& without) {
  struct ParentOf {
    pid_t parent, pid;
  };
  std::vector<ParentOf> links;
  for (const pid_t pid : all_processes())
    if (const auto parent = parent_of(pid)) links.push_back({*parent, pid});
  std::ranges::sort(links, {}, &ParentOf::parent);
  std::vector<pid_t> found;
  const auto add_children = [&](pid_t parent) {
    for (const ParentOf& link : std::ranges::equal_range(links, parent, {}, &ParentOf::parent))
      if (std::ranges::find(found, link.pid) == found.end() &&
          std::ranges::find(without, link.pid) == without.end())
        found.push_back(link.pid);
  };
  add_children(root);
  for (std::size_t i = 0; i < found.size(); ++i) add_children(found[i]);
  return found;
}

std::vector<pid_t> processes_with(const std::string& assignment) {
  std::vector<pid_t> found;
  const std::string wanted = '\0' + assignment + '\0';
  for (const pid_t pid : all_processes()) {
    const std::string environment = '\0' + read_proc(pid, "environ") + '\0';
    if (environment.find(wanted) != std::string::npos) found.push_back(pid);
  }
  return found;
}

int suspending_signal(pid_t child) {
  siginfo_t info{};
  const bool known = waitid(P_PID, static_cast<id_t>(child), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0;
  return known && info.si_pid == child && info.si_code == CLD_STOPPED ? info.si_status : 0;
}

std::string describe_process(pid_t pid) {
  std::string name = read_proc(pid, "comm");
  if (name.ends_with('\n')) name.pop_back();
  return std::to_string(pid) + " (" + name + ")";
}

}  // namespace starling
