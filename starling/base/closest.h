#pragma once

#include <string>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// The valid name that was most likely meant: one letter (two in names of five or more) changed, added,
/// dropped or swapped with the next. Empty if none is that close.
std::string closest_name(const std::string& name, const std::vector<std::string>& valid);

/// " (did you mean ring?)", or "" if no valid name is close. A name also matches by its first word: " (did
/// you mean dsgd-atc or dsgd-awc?)".
std::string closest_name_hint(const std::string& name, const std::vector<std::string>& valid);

/// "unknown topology 'rnig' (did you mean ring?); valid are ring, ...". Aliases are considered for the guess
/// but not listed.
std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& valid, const std::vector<std::string>& aliases = {});

}  // namespace starling
