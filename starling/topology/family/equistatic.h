#pragma once

#include <cstdint>
#include <vector>

#include "starling/base/types.h"

namespace starling::topology::family {

/// m draws, uniform on 1 .. n-1 with replacement: the offsets of EquiStatic, and of EquiDyn with m=.
std::vector<Rank> equistatic_draws(Rank n, std::int64_t m, std::uint64_t seed);

}  // namespace starling::topology::family
