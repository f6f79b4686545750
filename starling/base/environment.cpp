#include "starling/base/environment.h"

#include <cstdlib>
#include <fmt/format.h>

namespace starling {

std::string EnvironmentVariable::text() const {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool EnvironmentVariable::is_set() const {
  return std::getenv(name) != nullptr;
}

std::span<const EnvironmentVariable> environment_variables() {
  static constexpr EnvironmentVariable kAll[] = {
#define STARLING_VARIABLE(constant, name, holds, fallback, about) environment::constant,
#include "starling/base/environment.inc"
#undef STARLING_VARIABLE
  };
  return kAll;
}

namespace {

// At most 100 columns, later lines indented.
std::string wrapped_item(const std::string& text) {
  constexpr std::size_t kColumns = 100;
  std::string lines, line = "-";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (line.size() + 1 + word.size() > kColumns) {
      lines += line + "\n";
      line = " ";
    }
    line += " " + word;
    at = end + 1;
  }
  return lines + line + "\n";
}

}  // namespace

std::string environment_page() {
  std::string page =
      "# Environment variables\n\n"
      "All that Starling reads, as `starling info --variables` prints them. Launchers' own variables (of\n"
      "`mpirun`, `srun`, `torchrun`) are in [running.md](running.md).\n\n";
  bool internal = false;
  for (const EnvironmentVariable& variable : environment_variables()) {
    if (!internal && variable.name == std::string(environment::kRank.name)) {
      internal = true;
      page +=
          "\n## Between a launcher and its ranks\n\nYou set these only where you start ranks yourself.\n\n";
    }
    page += wrapped_item(fmt::format("`{}` ({}; default: {}): {}", variable.name, variable.holds,
                                     variable.fallback, variable.about));
  }
  return page;
}

}  // namespace starling
