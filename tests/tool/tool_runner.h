#pragma once

#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

#include <nlohmann/json.hpp>

namespace starling::tool {

/// The result of one run of the command.
struct ToolRun {
  int status = -1;  // the exit status; -1 if a signal ended it
  std::string out;
  std::string err;

  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

/// Runs the real `starling` with these arguments, its output in pipes. The destructor kills it if it still
/// runs.
class StartedTool {
 public:
  enum class Output { pipes, terminal };  // with a terminal, `out` gets all output
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

/// Runs it until it ends.
ToolRun run_tool(const std::vector<std::string>& arguments);

/// A temporary folder, removed when the test ends.
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
