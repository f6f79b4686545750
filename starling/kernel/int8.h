#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "starling/kernel/code_rules.h"

// Messages with one byte per element, in which a run of values shares a scale. The bits are the same on every
// instruction set, for every alignment and on every rank.

namespace starling::kernel {

/// A run of values as it is sent.
struct Int8Run {
  const std::int8_t* codes;
  Int8Grid grid;
};

/// One summand of an average of runs.
struct Int8Term {
  Int8Run run;
  double weight;
};

/// Rounds each value to the nearest of 255 values, evenly spaced from the least to the greatest of at least
/// one value; the error is at most half a step (plus float32 rounding). Equal values are kept exactly. A run
/// with a NaN or an infinity decodes to NaN throughout: middle is NaN, codes are 0.
Int8Grid quantize_int8(const float* in, std::size_t count, std::int8_t* out);

/// out = x + sum of w * (q - own) over the terms, like combine_around() in kernel/combine.h: q and own are
/// the decoded runs, in float32; x and out may be the same. Without x (null), only the sum.
void combine_around_int8(float* out, const float* x, const Int8Run& own, std::span<const Int8Term> terms,
                         std::size_t count);

}  // namespace starling::kernel
