#pragma once

#include <cstddef>
#include <span>

#include "starling/base/buffer.h"
#include "starling/kernel/store.h"
#include "starling/kernel/term.h"

namespace starling::kernel {

/// out = w0*x0 + w1*x1 + ... in one pass; zeros without terms. `out` may be exactly one of the inputs but
/// must not overlap them otherwise. Blocks need only the alignment of their elements.
///
/// float64 is computed in float64; shorter types in float32, with the weights rounded to float32, and the sum
/// is rounded once, to nearest even. Each element is ((w0*x0) + w1*x1) + ..., every operation rounded on its
/// own: the bits are the same on every instruction set, for every alignment and however the range is split
/// into calls. (A NaN stays some NaN.) Above four terms `store` has no effect. Throws InvalidArgument for
/// integers. Averages are computed from differences; see kernel/average.h.
void combine(DType dtype, void* out, std::span<const Term> terms, std::size_t count,
             Store store = Store::automatic);

inline void combine(Buffer out, std::span<const Term> terms, Store store = Store::automatic) {
  combine(out.dtype, out.host_data(), terms, out.count, store);
}

/// out = x + sum of w * (q - own) over the terms: mixing with messages in reduced precision. `own` is x as
/// this rank sent it and the terms are what the others sent, of dtype `message` (float16, bfloat16, float32
/// or float64). x and out may be the same and are float32, or float64 like the messages. Without x (null),
/// only the sum. With symmetric weights each pair's differences cancel exactly, so the flock's mean moves
/// only by the last rounding of each element, not by that of the messages. The differences are summed first,
/// in the given order, and x is added last: equal messages leave x bit for bit.
void combine_around(DType message, void* out, const void* x, const void* own, std::span<const Term> terms,
                    std::size_t count);

}  // namespace starling::kernel

namespace starling {
using kernel::combine;
}  // namespace starling
