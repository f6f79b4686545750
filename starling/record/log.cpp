#include "starling/record/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <optional>

#include "starling/base/environment.h"
#include "starling/base/error.h"

namespace starling::record {
namespace {

std::optional<LogLevel> named_level() {
  const std::string word = environment::kLog.text();
  if (word.empty() || word == "normal") return LogLevel::normal;
  if (word == "quiet") return LogLevel::quiet;
  if (word == "info") return LogLevel::info;
  if (word == "debug") return LogLevel::debug;
  return {};
}

// An invalid value counts as normal here; join() rejects it.
std::atomic<LogLevel>& level_now() {
  static std::atomic<LogLevel> level{named_level().value_or(LogLevel::normal)};
  return level;
}

}  // namespace

void read_log_level() {
  const auto level = named_level();
  if (!level)
    throw InvalidArgument(fmt::format("STARLING_LOG={} is invalid; valid: quiet, normal, info, debug",
                                      environment::kLog.text()));
  level_now() = *level;
}

LogLevel log_level() {
  return level_now();
}

void log(LogLevel level, std::string_view text) {
  if (level == LogLevel::quiet || level > log_level()) return;
  const std::string line = fmt::format("starling: {}\n", text);
  std::fwrite(line.data(), 1, line.size(), stderr);  // in one call, so that lines of ranks do not mix
}

}  // namespace starling::record
