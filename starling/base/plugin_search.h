#pragma once

#include <filesystem>
#include <string>

#include "starling/base/floors.h"

namespace starling {

/// The file of a plugin, lib<library>.so. It is searched in STARLING_PLUGIN_PATH (folders separated by
/// colons), beside the program or library that contains this code, in lib/starling of its installation, and
/// in the folders of the dynamic loader. Throws Error that names `what` is missing, the folders, and the
/// software that a build needs for it.
std::filesystem::path find_plugin(const std::string& library, const std::string& what,
                                  const std::string& built_with);

}  // namespace starling
