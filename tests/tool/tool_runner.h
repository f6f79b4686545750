#pragma once

#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

#include <nlohmann/json.hpp>

namespace starling::tool {

/// What one run of the command left behind.
struct ToolRun {
  int status = -1;  // the exit status; -1 when a signal ended it
  std::string out;
  std::string err;

  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

/// The real `starling` with these arguments, its output in pipes. Killed if nobody waits for it.
class StartedTool {
 public:
  enum class Output { pipes, terminal };  // a terminal's is all in `out`
  explicit StartedTool(const std::vector<std::string>& arguments, Output output = Output::pipes);
  ~StartedTool();
  StartedTool(const StartedTool&) = delete;
  StartedTool& operator=(const StartedTool&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int signal) const;
  ToolRun finish();

 private:
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
};

/// Runs it to its end.
ToolRun run_tool(const std::vector<std::string>& arguments);

/// A folder of the test's own, gone when it ends.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::string& path);

}  // namespace starling::tool
