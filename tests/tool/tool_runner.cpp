#include "tool/tool_runner.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <pty.h>
#include <stdexcept>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

namespace starling::tool {
namespace {

// Reads until the writer closes; returns false at the end.
bool read_some(int descriptor, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR;
  text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0;
}

// Reads both pipes at once, since a full one would block the program.
void drain(int out, int err, ToolRun& run) {
  std::array<pollfd, 2> ends{{{out, POLLIN, 0}, {err, POLLIN, 0}}};
  std::array<std::string*, 2> texts{&run.out, &run.err};
  for (int open = 2; open > 0;) {
    if (poll(ends.data(), ends.size(), -1) < 0 && errno != EINTR) throw std::runtime_error("poll");
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0 || read_some(ends[i].fd, *texts[i])) continue;
      close(ends[i].fd);
      ends[i].fd = -1;
      --open;
    }
  }
}

}  // namespace

StartedTool::StartedTool(const std::vector<std::string>& arguments, Output output) {
  std::vector<std::string> words = {STARLING_TOOL_PATH};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::array<int, 2> out;
  std::array<int, 2> err;
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0)
    throw std::runtime_error("pipe");
  if (output == Output::terminal) {
    close(out[0]);
    close(out[1]);
    if (openpty(&out[0], &out[1], nullptr, nullptr, nullptr) != 0) throw std::runtime_error("openpty");
    for (const int end : out) fcntl(end, F_SETFD, FD_CLOEXEC);
  }
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(output == Output::terminal ? out[1] : err[1], STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

StartedTool::~StartedTool() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  finish();
}

void StartedTool::signal(int signal) const {
  kill(pid_, signal);
}

ToolRun StartedTool::finish() {
  ToolRun run;
  drain(out_, err_, run);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

ToolRun run_tool(const std::vector<std::string>& arguments) {
  return StartedTool(arguments).finish();
}

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "starling_tool_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Folder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace starling::tool
