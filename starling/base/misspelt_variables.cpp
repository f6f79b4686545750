#include "starling/base/misspelt_variables.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <unistd.h>

#include "starling/base/closest.h"
#include "starling/base/environment.h"

namespace starling {

std::vector<std::string> misspelt_variables() {
  std::vector<std::string> valid;
  for (const EnvironmentVariable& variable : environment_variables())
    if (*variable.owner == '\0') valid.emplace_back(variable.name);
  std::vector<std::string> lines;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with("STARLING_") || std::ranges::find(valid, name) != valid.end()) continue;
    if (const std::string close = closest_name(name, valid); !close.empty())
      lines.push_back(
          fmt::format("{} is set, which is not a variable of Starling (did you mean {}?)", name, close));
  }
  return lines;
}

}  // namespace starling
