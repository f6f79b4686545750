#pragma once

#include <cstddef>
#include <span>

#include "starling/base/buffer.h"
#include "starling/kernel/store.h"
#include "starling/kernel/term.h"

namespace starling::kernel {

/// out = w0*x0 + w1*x1 + ... in one pass; without terms, zeros. `out` may be exactly one of the inputs; other
/// overlaps are not allowed. Blocks are aligned as their elements are, no more.
///
/// float64 computes in float64; shorter types in float32, with the weights rounded to float32, and the sum is
/// rounded once, to nearest even. Per element ((w0*x0) + w1*x1) + ..., every operation rounded on its own:
/// the bits are the same on every instruction set, for every alignment and however the range is split into
/// calls. (A NaN stays a NaN; which one is not promised.) Above four terms `store` makes no difference.
/// Throws InvalidArgument for integers. An average is computed from differences: see kernel/average.h.
void combine(DType dtype, void* out, std::span<const Term> terms, std::size_t count,
             Store store = Store::automatic);

inline void combine(Buffer out, std::span<const Term> terms, Store store = Store::automatic) {
  combine(out.dtype, out.host_data(), terms, out.count, store);
}

/// out = x + sum of w * (q - own) over the terms: mixing with messages in reduced precision. `own` is what
/// this rank told the others of x, and the terms are what they told (dtype `message`: float16, bfloat16,
/// float32 or float64); x and out, which may be the same, are float32, or float64 as the messages are.
/// Without x (null) the differences alone. With symmetric weights each pair's differences cancel exactly, so
/// that the flock's mean moves only by the last rounding of each element, not by that of the messages. The
/// differences are summed first, in the given order, and x comes last: equal messages leave x bit for bit.
void combine_around(DType message, void* out, const void* x, const void* own, std::span<const Term> terms,
                    std::size_t count);

}  // namespace starling::kernel

namespace starling {
using kernel::combine;
}  // namespace starling
