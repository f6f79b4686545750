#pragma once

#include <cstddef>
#include <cstdint>

#include "starling/base/floors.h"

namespace starling::kernel {

/// Separates the k largest magnitudes from the rest: all above `magnitude` (the bits of |x|, which are
/// ordered like |x|, with NaN above infinity), and the first `ties` elements that equal it.
struct Cut {
  std::uint32_t magnitude;
  std::size_t ties;
};

/// The cut for 1 <= k <= count < 2^32. Counts leading bits, so the time is linear whatever the values are.
Cut cut_of_largest(const float* in, std::size_t count, std::size_t k);

/// Writes the k elements that a cut selects, in their order.
void take_largest(const float* in, std::size_t count, Cut cut, std::uint32_t* indices, float* values);

}  // namespace starling::kernel
