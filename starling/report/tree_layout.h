#pragma once

#include <optional>

#include "starling/report/topology_layout.h"

namespace starling::report {

/// The picture of a tree: in layers below `root` (or a root of our choice), or around it when there are many
/// leaves. Nothing for graphs that are no tree, and for chains, which look better bent along a circle.
std::optional<TopologyLayout> layout_tree(Rank n, const DrawnRound& round, std::optional<Rank> root);

}  // namespace starling::report
