#pragma once

#include <string_view>

namespace starling::record {

/// How much the library prints to standard error: STARLING_LOG=quiet|normal|info|debug.
enum class LogLevel { quiet, normal, info, debug };

/// Reads STARLING_LOG again; throws InvalidArgument for any other value.
void read_log_level();
LogLevel log_level();

/// Prints one line, prefixed with "starling: ", if the current level includes `level`. Thread-safe.
void log(LogLevel level, std::string_view text);

}  // namespace starling::record

namespace starling {
using record::LogLevel;
}  // namespace starling
