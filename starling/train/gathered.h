#pragma once

#include <optional>
#include <string>
#include <vector>

#include "starling/flock/flock.h"
#include "starling/train/description.h"

namespace starling::train {

/// What one rank has told the others about itself.
struct RankDescription {
  Rank rank = 0;
  Description what;
};

/// Everybody's, in the order of ranks; a collective.
std::vector<RankDescription> gather_descriptions(Flock& flock, const Description& own, const Name& name);

/// "lr: 0.1 on rank 0, 0.05 on rank 2" for the first difference. Ranks with nothing to tell do not count.
std::optional<std::string> difference_among(const std::vector<RankDescription>& everybody);

}  // namespace starling::train
