#pragma once

#include "starling/base/random.h"
#include "starling/base/types.h"

namespace starling::simulate {

/// The random numbers of (seed, node, step, stream): the draws of any node in any step, in any order.
inline Random node_random(std::uint64_t seed, Rank node, Step step, std::uint32_t stream) {
  const std::uint64_t key = Random(seed, static_cast<std::uint64_t>(node), stream).next();
  return {key, static_cast<std::uint64_t>(step), stream};
}

}  // namespace starling::simulate
