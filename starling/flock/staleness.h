#pragma once

#include <algorithm>
#include <cstdint>

#include "starling/base/types.h"

namespace starling::flock {

/// The age of the values used, in steps of the user.
struct Staleness {
  double sum = 0;
  std::uint64_t used = 0;
  Step oldest = 0;

  void add(Step age) {
    sum += static_cast<double>(age);
    ++used;
    oldest = std::max(oldest, age);
  }
  double mean() const { return used == 0 ? 0 : sum / static_cast<double>(used); }
};

}  // namespace starling::flock

namespace starling {
using flock::Staleness;
}  // namespace starling
