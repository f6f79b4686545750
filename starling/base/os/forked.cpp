#include "starling/base/os/forked.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <exception>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <sstream>
#include <unistd.h>

namespace starling {
namespace {

void close_what_exec_closes() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return;
  std::vector<int> closed;
  while (const dirent* entry = readdir(directory)) {
    const int fd = std::atoi(entry->d_name);
    const int flags = fd > 2 && fd != dirfd(directory) ? fcntl(fd, F_GETFD) : -1;
    if (flags >= 0 && (flags & FD_CLOEXEC) != 0) closed.push_back(fd);
  }
  closedir(directory);
  for (const int fd : closed) close(fd);
}

// The memory that the kernel shows as /proc/self/environ: the environment that this process was started with.
std::pair<char*, std::size_t> shown_environment() {
  std::ifstream file("/proc/self/stat");
  std::string stat;
  std::getline(file, stat);
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  constexpr int kFirst = 50;  // env_start is field 50 in proc(5); the first field after the name is number 3
  std::string skipped;
  for (int field = 3; field < kFirst; ++field) fields >> skipped;
  std::uintptr_t begin = 0, end = 0;
  if (!(fields >> begin >> end) || end <= begin) return {nullptr, 0};
  return {reinterpret_cast<char*>(begin), end - begin};
}

// The launcher's guard process and users identify a rank's process by its environment, so new variables come
// first. Variables that do not fit are not shown.
void show_environment(const std::vector<std::string>& environment) {
  const auto [shown, size] = shown_environment();
  if (size == 0) return;
  std::string text;
  for (auto entry = environment.rbegin(); entry != environment.rend(); ++entry)
    if (text.size() + entry->size() < size) text += *entry + '\0';
  text.resize(size, '\0');
  std::memcpy(shown, text.data(), size);
}

void take_environment(const std::vector<std::string>& environment) {
  static std::vector<std::string> entries;  // copies, because the original memory is about to be overwritten
  static std::vector<char*> pointers;
  entries = environment;
  for (std::string& entry : entries) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  environ = pointers.data();
  show_environment(entries);
}

}  // namespace

void flush_output() {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
}

void run_forked(const std::function<int()>& body, const std::vector<std::string>& environment) {
  int status = 2;
  try {
    close_what_exec_closes();
    take_environment(environment);
    status = body();
  } catch (const std::exception& error) {
    std::cerr << "starling: " << error.what() << '\n';
  }
  flush_output();
  _exit(status);
}

}  // namespace starling
