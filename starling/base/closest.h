#pragma once

#include <string>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// The one of these that was most likely meant: one letter, or two of five and more, changed, added, dropped
/// or swapped with the next; empty where none is that close.
std::string closest_name(const std::string& name, const std::vector<std::string>& valid);

/// " (did you mean ring?)", or nothing where no valid name is close. The first word of some names stands for
/// them: " (did you mean dsgd-atc or dsgd-awc?)".
std::string closest_name_hint(const std::string& name, const std::vector<std::string>& valid);

/// "unknown topology 'rnig' (did you mean ring?); valid are ring, ..." for names that are looked up. Aliases
/// may have been meant, too, but are not listed.
std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& valid, const std::vector<std::string>& aliases = {});

}  // namespace starling
