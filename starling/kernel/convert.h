#pragma once

#include <cstddef>

#include "starling/base/buffer.h"
#include "starling/kernel/store.h"

namespace starling::kernel {

/// Converts `count` elements, rounding to nearest even: float32 <-> float16, float32 <-> bfloat16, float64
/// <-> float32, or any dtype to itself (a copy). Values that are too large become infinite; a NaN stays a
/// NaN. The blocks must not overlap. Throws InvalidArgument for other pairs: float64 -> float16 by way of
/// float32 would round twice.
void convert(DType from, const void* in, DType to, void* out, std::size_t count,
             Store store = Store::automatic);
inline void convert(ConstBuffer in, Buffer out, Store store = Store::automatic) {
  convert(in.dtype, in.host_data(), out.dtype, out.host_data(), out.count, store);
}

}  // namespace starling::kernel

namespace starling {
using kernel::convert;
}  // namespace starling
