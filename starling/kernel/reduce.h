#pragma once

#include <cstddef>
#include <string>

#include "starling/base/buffer.h"

namespace starling::kernel {

/// How blocks are reduced. An average is a sum that the caller divides by the number of terms at the end.
enum class Reduction { sum, min, max, average };

std::string name(Reduction reduction);

/// accumulator[i] = accumulator[i] (sum, min or max) in[i], for every dtype; `average` adds. `in` may be the
/// accumulator itself; other overlaps are not allowed.
///
/// Sums of integers wrap around. float16 and bfloat16 add in float32 and round to nearest even. min and max
/// are IEEE 754-2019's minimum and maximum: a NaN on either side gives a NaN, and -0.0 is less than +0.0, so
/// the order of the operands does not matter.
void reduce(Reduction reduction, DType dtype, void* accumulator, const void* in, std::size_t count);
inline void reduce(Reduction reduction, Buffer accumulator, ConstBuffer in) {
  reduce(reduction, accumulator.dtype, accumulator.host_data(), in.host_data(), accumulator.count);
}

/// data[i] *= factor, rounded like combine(). Throws InvalidArgument for integers, whose average is not an
/// integer.
void scale(DType dtype, void* data, double factor, std::size_t count);
inline void scale(Buffer x, double factor) {
  scale(x.dtype, x.host_data(), factor, x.count);
}

}  // namespace starling::kernel

namespace starling {
using kernel::Reduction;
}  // namespace starling
