#include "tool/training_logs.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tool/tool_runner.h"

namespace starling::tool {

using nlohmann::json;

std::vector<json> read_log(const std::string& path) {
  std::vector<json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line) && !in.eof();) lines.push_back(json::parse(line));
  return lines;
}

std::vector<json> of_kind(const std::vector<json>& lines, const std::string& kind) {
  std::vector<json> some;
  for (const json& line : lines)
    if (line.at("kind") == kind) some.push_back(line);
  return some;
}

json last_result(const std::string& path) {
  json report = of_kind(read_log(path), "report").back();
  for (const char* key : {"seconds", "images_per_second", "computing", "waiting", "combining"})
    report.erase(key);
  return report;
}

pid_t process_of_rank(pid_t starter, int rank) {
  const std::string wanted = "STARLING_RANK=" + std::to_string(rank);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string status = read_file(entry.path() / "stat");
    std::istringstream rest(status.substr(std::min(status.size(), status.rfind(')') + 1)));
    std::string state;
    pid_t parent = -1;
    if (!(rest >> state >> parent) || parent != starter) continue;
    std::istringstream environment(read_file(entry.path() / "environ"));
    for (std::string variable; std::getline(environment, variable, '\0');)
      if (variable == wanted) return std::stoi(name);
  }
  return -1;
}

}  // namespace starling::tool
