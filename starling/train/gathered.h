#pragma once

#include <optional>
#include <string>
#include <vector>

#include "starling/flock/flock.h"
#include "starling/train/description.h"

namespace starling::train {

/// One rank's description of itself.
struct RankDescription {
  Rank rank = 0;
  Description what;
};

/// The descriptions of all ranks, in rank order; a collective.
std::vector<RankDescription> gather_descriptions(Flock& flock, const Description& own, const Name& name);

/// The first difference, as in "lr: 0.1 on rank 0, 0.05 on rank 2". Ranks without a value do not count.
std::optional<std::string> difference_among(const std::vector<RankDescription>& descriptions);

}  // namespace starling::train
