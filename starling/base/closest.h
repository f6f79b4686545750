#pragma once

#include <string>
#include <vector>

namespace starling {

/// "unknown topology 'rnig' (did you mean ring?); valid are ring, ..." for names that are looked up.
std::string unknown_name(const std::string& what, const std::string& name,
                         const std::vector<std::string>& valid);

}  // namespace starling
