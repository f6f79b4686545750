#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace starling {

/// What one run of the command left behind.
struct ToolRun {
  int status = -1;  // the exit status; -1 when a signal ended it
  std::string out;
  std::string err;

  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

/// Runs the real `starling` with these arguments, its output in pipes, and waits for it.
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

}  // namespace starling
