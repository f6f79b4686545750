#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "starling/base/floors.h"

// Shared libraries written by users that register topologies, methods, codecs or objectives by name.
// starling/extension.h describes such a library.

namespace starling {

/// Loads a shared library and lets it register its names; does nothing if the file is loaded already. Throws
/// Error if the file is missing, cannot be loaded, is not an extension, was built with another version of
/// Starling, or registers nothing.
void load_extension(const std::filesystem::path& file);

/// Loads several libraries and adds them to STARLING_LOAD, so that child processes load them, too.
void load_extensions(const std::vector<std::string>& files);

/// Loads the files in STARLING_LOAD (separated by colons).
void load_extensions_of_environment();

}  // namespace starling
