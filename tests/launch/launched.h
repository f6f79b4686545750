#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "starling/base/os/descriptor.h"

namespace starling::launch {

/// A running `starling run` with its output in pipes. Every wait fails the test after half a minute.
class Launched {
 public:
  struct Setup {
    std::vector<std::string> words;        // arguments of `starling run`
    std::string input{};                   // written to its standard input, which is then closed
    std::vector<std::string> variables{};  // NAME=VALUE, in addition to the test's
    // Runs in a pseudo-terminal instead of pipes; `out` gets all output
    bool terminal = false;
    std::function<int()> instead{};  // runs in the process instead of the command
  };

  explicit Launched(Setup setup);
  ~Launched();
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int signal) const;
  /// Waits until the output contains `text`, `times` times.
  void wait_for(const std::string& text, int times = 1);
  /// Types at the terminal.
  void type(const std::string& keys) const;
  void close_output() { out_.reset(); }
  /// Waits for the end and returns the exit status, or minus the signal.
  int finish();

  std::string out, err;

 private:
  bool read_some(int milliseconds);

  pid_t pid_ = -1;
  Descriptor out_, err_;
  bool ended_ = false;
};

/// Runs a job until it ends.
struct Finished {
  explicit Finished(Launched::Setup setup);
  int status;
  std::string out, err;
};

int count(const std::string& text, const std::string& part);
std::vector<std::string> sorted_lines(const std::string& text);

/// The value in the line `name=value`; any prefix is allowed.
std::string value_of(const std::string& text, const std::string& name);

/// Waits until no process of the job is left; false after half a minute.
bool nothing_left_of(const std::string& token);
bool soon_gone(pid_t pid);

/// A temporary folder, removed on destruction.
struct TestFolder {
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::filesystem::path path;
};

std::string contents(const std::filesystem::path& path);

}  // namespace starling::launch
