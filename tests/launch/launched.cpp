#include "launch/launched.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utmp.h>

#include "base/eventually.h"
#include "starling/base/os/processes.h"

namespace starling::launch {
namespace {

constexpr std::chrono::seconds kLimit(30);

struct ProgramPipe {
  ProgramPipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    read_end = Descriptor(ends[0]);
    write_end = Descriptor(ends[1]);
  }
  Descriptor read_end, write_end;
};

}  // namespace

Launched::Launched(Setup setup) {
  ProgramPipe in, output, errors;
  int master = -1;
  int slave = -1;
  if (setup.terminal) {
    if (openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) std::abort();
    fcntl(master, F_SETFD, FD_CLOEXEC);
  }
  std::vector<std::string> words = {STARLING_TOOL_PATH, "run"};
  words.insert(words.end(), setup.words.begin(), setup.words.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    // The test runner may have set its own values.
    for (const char* name : {"NO_COLOR", "OMP_NUM_THREADS", "STARLING_JOB", "RANK"}) unsetenv(name);
    for (std::string& variable : setup.variables) putenv(variable.data());
    if (setup.terminal) {
      login_tty(slave);
    } else {
      dup2(in.read_end.get(), 0);
      dup2(output.write_end.get(), 1);
      dup2(errors.write_end.get(), 2);
    }
    if (setup.instead) _exit(setup.instead());
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  if (setup.terminal) {
    close(slave);
    out_ = Descriptor(master);
    EXPECT_EQ(write(master, setup.input.data(), setup.input.size()),
              static_cast<ssize_t>(setup.input.size()));
  } else {
    out_ = std::move(output.read_end);
    err_ = std::move(errors.read_end);
    EXPECT_EQ(write(in.write_end.get(), setup.input.data(), setup.input.size()),
              static_cast<ssize_t>(setup.input.size()));
  }
}

Launched::~Launched() {
  if (ended_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Launched::signal(int signal) const {
  kill(pid_, signal);
}

void Launched::type(const std::string& keys) const {
  EXPECT_EQ(write(out_.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

bool Launched::read_some(int milliseconds) {
  pollfd polled[2] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
  if (!out_ && !err_) return false;
  poll(polled, 2, milliseconds);
  char buffer[65536];
  const auto take = [&](Descriptor& fd, short events, std::string& text) {
    if (!fd || events == 0) return;
    const ssize_t got = read(fd.get(), buffer, sizeof buffer);
    if (got > 0) {
      text.append(buffer, static_cast<std::size_t>(got));
    } else {
      fd.reset();
    }
  };
  take(out_, polled[0].revents, out);
  take(err_, polled[1].revents, err);
  return true;
}

void Launched::wait_for(const std::string& text, int times) {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (count(out + err, text) < times) {
    const bool open = read_some(100);
    if (open && std::chrono::steady_clock::now() < end) continue;
    FAIL() << "'" << text << "' did not come " << times << " times:\n" << out << err;
  }
}

int Launched::finish() {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  int status = 0;
  // A surviving descendant may hold the pipes open: wait for the process, then read what is in the pipes.
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (!read_some(20)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (std::chrono::steady_clock::now() < end) continue;
    ADD_FAILURE() << "starling run hangs; so far:\n" << out << err;
    kill(pid_, SIGKILL);
  }
  ended_ = true;
  for (std::size_t before = ~std::size_t{0}; before != out.size() + err.size();) {
    before = out.size() + err.size();
    read_some(0);
  }
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

Finished::Finished(Launched::Setup setup) {
  Launched job(std::move(setup));
  status = job.finish();
  out = job.out;
  err = job.err;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++found;
  return found;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

std::string value_of(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name + "=");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

bool nothing_left_of(const std::string& token) {
  EXPECT_EQ(token.size(), 32u);
  return eventually([&] { return processes_with("STARLING_JOB=" + token).empty(); });
}

bool soon_gone(pid_t pid) {
  EXPECT_GT(pid, 1);
  return eventually([&] {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(stat, text);
    return text.empty() || text.find(") Z") != std::string::npos;
  });
}

TestFolder::TestFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "starling-launch-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path = name;
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace starling::launch
