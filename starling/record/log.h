#pragma once

#include <string_view>

namespace starling {

/// How much the library says on standard error by itself: STARLING_LOG=quiet|normal|info|debug.
enum class LogLevel { quiet, normal, info, debug };

/// Reads STARLING_LOG again; throws InvalidArgument for anything else.
void read_log_level();
LogLevel log_level();

/// One line, behind "starling: ", where the level asks for it.
void log(LogLevel level, std::string_view text);

}  // namespace starling
