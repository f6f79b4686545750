#pragma once

#include <string>
#include <vector>

namespace starling::tool {

/// "2 cores, AMD EPYC", for reports.
std::string machine_text();

/// What OPENBLAS_CORETYPE should say where OpenBLAS runs with the kernels for `core`, such as "Prescott":
/// those are what it takes for any processor that is younger than itself. "" where it has chosen well.
std::string better_blas_core(const std::string& core);

/// "eth0 192.0.2.7", those that are up and have an address.
std::vector<std::string> network_interfaces();

}  // namespace starling::tool
