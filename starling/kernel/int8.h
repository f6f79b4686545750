#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "starling/kernel/code_rules.h"

// Messages of one byte per element: a run of values is scaled together. The bits are the same on every
// instruction set, for every alignment and on every rank.

namespace starling::kernel {

/// A run as it travels.
struct Int8Run {
  const std::int8_t* codes;
  Int8Grid grid;
};

/// One summand of an average of runs.
struct Int8Term {
  Int8Run run;
  double weight;
};

/// The nearest of 255 values, evenly spread from the least to the greatest of at least one: off by half a
/// step at most (and by the rounding of float32). Equal values come back as they are. A run with a NaN or an
/// infinity stands for NaN throughout: middle is NaN, codes are 0.
Int8Grid quantize_int8(const float* in, std::size_t count, std::int8_t* out);

/// out = x + sum of w * (q - own) over the terms, as combine_around() of kernel/combine.h for other messages:
/// q and own are what the runs stand for, in float32; x and out may be the same. Without x (null) the
/// differences alone.
void combine_around_int8(float* out, const float* x, const Int8Run& own, std::span<const Int8Term> terms,
                         std::size_t count);

}  // namespace starling::kernel
