#pragma once

#include <string>
#include <vector>

#include "starling/base/floors.h"

namespace starling {

/// The one of these that was most likely meant: at most two letters changed, added, dropped or swapped with
/// the next; empty where none is that close.
std::string closest_name(const std::string& name, const std::vector<std::string>& valid);

/// "unknown topology 'rnig' (did you mean ring?); valid are ring, ..." for names that are looked up.
std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& valid);

}  // namespace starling
