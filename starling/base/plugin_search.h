#pragma once

#include <filesystem>
#include <string>

#include "starling/base/floors.h"

namespace starling {

/// Finds a plugin's file, lib<library>.so. Searched are STARLING_PLUGIN_PATH (folders separated by colons),
/// the folder of the program or library that contains this code, lib/starling of its installation, and the
/// dynamic loader's folders. Otherwise throws Error that names `what` is missing, the folders searched, and
/// the software that a build with it needs.
std::filesystem::path find_plugin(const std::string& library, const std::string& what,
                                  const std::string& built_with);

}  // namespace starling
