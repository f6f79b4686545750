#pragma once

#include <string>

namespace starling::tool {

/// "2 cores, AMD EPYC", for reports.
std::string machine_text();

}  // namespace starling::tool
