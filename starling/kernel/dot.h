#pragma once

#include <cstddef>

namespace starling::kernel {

/// The sum of a[i] b[i]: 64 sums in the elements' type over at most 4096 elements, added up in float64. Same
/// bits on every instruction set.
double dot(const float* a, const float* b, std::size_t count);
double dot(const double* a, const double* b, std::size_t count);

}  // namespace starling::kernel

namespace starling {
using kernel::dot;
}  // namespace starling
