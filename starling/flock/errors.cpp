#include "starling/flock/errors.h"

#include <fmt/format.h>

namespace starling {

PeerLost::PeerLost(Rank peer, const std::string& operation, Step step)
    : Error(fmt::format("rank {} is lost: {} (step {}) needed it", peer, operation, step)),
      peer_(peer),
      operation_(operation),
      step_(step) {}

}  // namespace starling
