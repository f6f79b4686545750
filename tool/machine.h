#pragma once

#include <string>
#include <vector>

namespace starling::tool {

/// "2 cores, AMD EPYC", for reports.
std::string machine_text();

/// "eth0 192.0.2.7", those that are up and have an address.
std::vector<std::string> network_interfaces();

}  // namespace starling::tool
