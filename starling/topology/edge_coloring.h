#pragma once

#include <utility>
#include <vector>

#include "starling/topology/graph.h"

namespace starling::topology {

/// A matching, as the partner of each rank; a rank without a partner is its own.
using Partners = std::vector<Rank>;

/// Splits an undirected graph's edges into at most (largest degree + 1) matchings (Misra and Gries, 1992),
/// then tries to empty one color by swapping two colors along paths. That always succeeds on bipartite graphs
/// (Koenig), which so get as many matchings as their largest degree, and on most other graphs for which as
/// few are enough.
std::vector<Partners> color_edges(const Graph& graph);

}  // namespace starling::topology
