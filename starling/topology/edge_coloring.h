#pragma once

#include <utility>
#include <vector>

#include "starling/topology/graph.h"

namespace starling::topology {

/// A matching as the partner of each rank; a rank without partner has itself.
using Partners = std::vector<Rank>;

/// Splits an undirected graph's edges into at most (largest degree + 1) matchings (Misra and Gries, 1992).
/// Then one color is emptied, edge by edge, where that is possible by exchanging two colors along a path:
/// always on bipartite graphs (Koenig), which then have as many matchings as their largest degree, and on
/// most others that need no more.
std::vector<Partners> color_edges(const Graph& graph);

}  // namespace starling::topology
