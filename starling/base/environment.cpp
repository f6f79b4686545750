#include "starling/base/environment.h"

#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

#include "starling/base/error.h"
#include "starling/base/word_wrap.h"

namespace starling {
namespace {

// Empty if the text is not exactly one number.
template <typename Number>
std::optional<Number> parsed_number(std::string_view text) {
  Number number{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

[[noreturn]] void refuse(const EnvironmentVariable& variable, const std::string& valid) {
  throw InvalidArgument(fmt::format("{}={} is not {}", variable.name, variable.text(), valid));
}

}  // namespace

const char* EnvironmentVariable::value() const {
  return std::getenv(name);
}

std::string EnvironmentVariable::text() const {
  const char* set = value();
  return set == nullptr ? "" : set;
}

std::optional<std::int64_t> EnvironmentVariable::number(std::int64_t lowest, std::int64_t highest) const {
  const std::string set = text();
  if (set.empty()) return std::nullopt;
  const auto number = parsed_number<std::int64_t>(set);
  if (!number || *number < lowest || *number > highest)
    refuse(*this, fmt::format("a whole number from {} to {}", lowest, highest));
  return number;
}

std::optional<std::chrono::nanoseconds> EnvironmentVariable::seconds(double lowest) const {
  constexpr double kHighest = 1e9;  // nanoseconds beyond this do not fit
  const std::string set = text();
  if (set.empty()) return std::nullopt;
  const auto seconds = parsed_number<double>(set);
  if (!seconds || !(*seconds > 0 && *seconds >= lowest && *seconds < kHighest))
    refuse(*this, lowest > 0 ? fmt::format("a number of seconds, {} or more", lowest)
                             : "a number of seconds above 0");
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(*seconds));
}

std::optional<std::uint64_t> EnvironmentVariable::bytes() const {
  const std::string set = text();
  if (set.empty()) return std::nullopt;
  const auto bytes = parsed_number<std::uint64_t>(set);
  if (!bytes || *bytes == 0) refuse(*this, "a number of bytes above 0");
  return bytes;
}

std::span<const EnvironmentVariable> environment_variables() {
  static constexpr EnvironmentVariable kAll[] = {
#define STARLING_VARIABLE(constant, name, holds, fallback, about) environment::constant,
#define FOREIGN_VARIABLE(constant, name, owner, holds, about) environment::constant,
#include "starling/base/environment.inc"
#undef STARLING_VARIABLE
#undef FOREIGN_VARIABLE
  };
  return kAll;
}

namespace {

// One list item, at most 100 columns wide.
std::string page_item(const EnvironmentVariable& variable) {
  const bool ours = *variable.owner == '\0';
  const std::string text =
      ours ? fmt::format("`{}` ({}; default: {}): {}", variable.name, variable.holds, variable.fallback,
                         variable.about)
           : fmt::format("`{}` ({}; {}): {}", variable.name, variable.owner, variable.holds, variable.about);
  std::string item;
  for (const std::string& line : wrap_words(text, 98)) item += (item.empty() ? "- " : "  ") + line + "\n";
  return item;
}

}  // namespace

std::string environment_page() {
  std::string page =
      "# Environment variables\n\n"
      "All that Starling reads, as `starling info --variables` prints them. A variable that looks like a\n"
      "misspelled one of these, such as `STARLING_TIMOUT`, gets a line on standard error.\n\n";
  bool foreign = false;
  for (const EnvironmentVariable& variable : environment_variables()) {
    if (variable.name == std::string_view(environment::kRank.name))
      page +=
          "\n## Between a launcher and its ranks\n\nYou set these only where you start ranks yourself.\n\n";
    if (!foreign && *variable.owner != '\0') {
      foreign = true;
      page +=
          "\n## Variables of launchers and other tools\n\n"
          "Others define these; Starling reads them, or sets them for the ranks that it starts.\n"
          "[running.md](running.md) says which launcher counts.\n\n";
    }
    page += page_item(variable);
  }
  return page;
}

}  // namespace starling
