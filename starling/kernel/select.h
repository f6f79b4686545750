#pragma once

#include <cstddef>
#include <cstdint>

#include "starling/base/floors.h"

namespace starling::kernel {

/// What separates the k largest magnitudes from the rest: all above `magnitude` (the bits of |x|, which
/// ascend as |x| does, with NaN above infinity), and the first `ties` of those that equal it.
struct Cut {
  std::uint32_t magnitude;
  std::size_t ties;
};

/// The cut for 1 <= k <= count < 2^32. By counting leading bits, so that the time is linear whatever the
/// values are.
Cut cut_of_largest(const float* in, std::size_t count, std::size_t k);

/// The elements that a cut leaves, in their order: as many as cut_of_largest() was asked for.
void take_largest(const float* in, std::size_t count, Cut cut, std::uint32_t* indices, float* values);

}  // namespace starling::kernel
