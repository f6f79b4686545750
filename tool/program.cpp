#include "tool/program.h"

#include <filesystem>
#include <fmt/format.h>
#include <string_view>
#include <unistd.h>

#include "starling/base/error.h"

namespace starling::tool {
namespace {

std::string last_line(std::string text) {
  while (!text.empty() && std::string_view("\n\r -").find(text.back()) != std::string_view::npos)
    text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

ProgramRun run_successfully(const std::vector<std::string>& words, const std::vector<int>& cpus,
                            std::chrono::seconds limit) {
  auto run = run_program(words, limit, cpus);
  const std::string name = std::filesystem::path(words.front()).filename().string();
  if (!run.in_time) throw Error(fmt::format("{} took longer than {} s", name, limit.count()));
  if (run.ending.failed()) {
    const std::string said = last_line(run.err);
    throw Error(said.empty() ? fmt::format("{} failed: {}", name, run.ending.text()) : said);
  }
  return run;
}

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::optional<std::string> beside_us(const std::string& name) {
  const auto file = std::filesystem::path(own_path()).parent_path() / name;
  if (access(file.c_str(), X_OK) != 0) return std::nullopt;
  return file.string();
}

}  // namespace starling::tool
