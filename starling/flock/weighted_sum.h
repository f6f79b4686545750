#pragma once

#include <span>

#include "starling/base/buffer.h"
#include "starling/kernel/combine.h"

namespace starling::flock {

/// out <- the sum of the terms, in one kind of memory; `out` may be the first. Integers accept only weights 0
/// and 1: throws InvalidArgument.
void weighted_sum(Buffer out, std::span<const Term> terms);

/// Throws InvalidArgument for a weight that values of this type cannot have.
void check_weight(DType dtype, double weight);

}  // namespace starling::flock
