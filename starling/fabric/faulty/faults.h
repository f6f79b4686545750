#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "starling/base/types.h"

namespace starling::fabric {

/// The faults to inject. Each is a function of (seed, pair of ranks, number of the message), so a script has
/// the same effect every time.
struct Faults {
  std::uint64_t seed = 0;
  double drop = 0;   // probability that a message never arrives
  double lose = 0;   // probability that a neighbor average's or relay's message arrives empty, so that its
                     // receiver knows at once that it has to do without; receipts are never lost
  double delay = 0;  // probability that a message is delayed, with all later ones from the same sender
  std::chrono::microseconds longest_delay{1000};  // uniform up to this
  std::vector<std::pair<Rank, std::uint64_t>> kills =
      {};  // this rank dies by SIGKILL before its k-th post, counted from 0

  bool operator==(const Faults&) const = default;
};

}  // namespace starling::fabric

namespace starling {
using fabric::Faults;
}  // namespace starling
