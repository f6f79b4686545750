#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace starling {

/// An environment variable that Starling reads, declared once in environment.inc. Code refers to it by its
/// constant and reads it only here.
struct EnvironmentVariable {
  const char* name;
  const char* holds;     // "seconds", "file"
  const char* fallback;  // for the documentation; "" for variables of other programs
  const char* about;     // one sentence
  const char* owner;     // the tool that defines it; "" for Starling's own

  /// The value; null if the variable is not set.
  const char* value() const;
  /// The value; empty if the variable is not set.
  std::string text() const;
  /// Whether the variable is set, even to the empty string.
  bool is_set() const { return value() != nullptr; }

  /// The value as a number; empty if the variable is unset or empty. These functions throw InvalidArgument
  /// with the variable, its value and the valid range.
  std::optional<std::int64_t> number(std::int64_t lowest, std::int64_t highest) const;
  /// A duration above 0, or of at least `lowest`.
  std::optional<std::chrono::nanoseconds> seconds(double lowest = 0) const;
  /// A size above 0.
  std::optional<std::uint64_t> bytes() const;

  /// "NAME=value", as in a process's environment.
  std::string assignment(const std::string& value) const { return std::string(name) + "=" + value; }
};

namespace environment {
#define STARLING_VARIABLE(constant, name, holds, fallback, about) \
  inline constexpr EnvironmentVariable constant{name, holds, fallback, about, ""};
#define FOREIGN_VARIABLE(constant, name, owner, holds, about) \
  inline constexpr EnvironmentVariable constant{name, holds, "", about, owner};
#include "starling/base/environment.inc"
#undef STARLING_VARIABLE
#undef FOREIGN_VARIABLE
}  // namespace environment

/// All variables: those for users, those between a launcher and its ranks, and those of other tools.
std::span<const EnvironmentVariable> environment_variables();

/// The content of docs/environment.md.
std::string environment_page();

}  // namespace starling
