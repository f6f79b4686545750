#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "starling/base/floors.h"

// Shared libraries of users that register topologies, methods, codecs or objectives by name. What such a
// library contains is in starling/extension.h.

namespace starling {

/// Loads a shared library and lets it register what it has; a file that is loaded already is left alone.
/// Throws Error where the file is missing, does not load, is no extension, was built against another version
/// of Starling, or registers nothing.
void load_extension(const std::filesystem::path& file);

/// Loads several and notes them in the variable STARLING_LOAD, so that processes started from here load them.
void load_extensions(const std::vector<std::string>& files);

/// Loads what STARLING_LOAD names: files with colons between them.
void load_extensions_of_environment();

}  // namespace starling
