#pragma once

#include <optional>

#include "starling/report/topology_layout.h"

namespace starling::report {

/// The layout of a tree: in layers below `root` (or a root of our choice), or around the root if there are
/// many leaves. Empty for graphs that are not trees, and for chains, which look better along a circle.
std::optional<TopologyLayout> layout_tree(Rank n, const DrawnRound& round, std::optional<Rank> root);

}  // namespace starling::report
