#pragma once

#include <span>
#include <string>

namespace starling {

/// A variable of the environment, declared once in environment.inc. What reads one says so by its constant.
struct EnvironmentVariable {
  const char* name;
  const char* holds;     // "seconds", "file"
  const char* fallback;  // in words, for the documentation
  const char* about;     // one sentence

  /// Its text; empty where it is not set.
  std::string text() const;
  /// Set, if only to nothing.
  bool is_set() const;
  /// "NAME=value", as processes are given it.
  std::string assignment(const std::string& value) const { return std::string(name) + "=" + value; }
};

namespace environment {
#define STARLING_VARIABLE(constant, name, holds, fallback, about) \
  inline constexpr EnvironmentVariable constant{name, holds, fallback, about};
#include "starling/base/environment.inc"
#undef STARLING_VARIABLE
}  // namespace environment

/// All of them, those for users first.
std::span<const EnvironmentVariable> environment_variables();

/// docs/environment.md.
std::string environment_page();

}  // namespace starling
