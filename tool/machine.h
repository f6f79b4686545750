#pragma once

#include <string>
#include <vector>

namespace starling::tool {

/// "2 cores, AMD EPYC", for reports.
std::string machine_text();

/// The value that OPENBLAS_CORETYPE should have if OpenBLAS uses the kernels for an old `core` such as
/// "Prescott", as it does on any processor that is newer than itself. "" if its choice is good.
std::string better_blas_core(const std::string& core);

/// The interfaces that are up and have an address, as "eth0 192.0.2.7".
std::vector<std::string> network_interfaces();

}  // namespace starling::tool
