#pragma once

#include <vector>

#include "starling/topology/graph.h"
#include "starling/topology/matrix.h"

namespace starling::topology {

/// What is allowed for weights that the program provides.
struct StoredOptions {
  bool allow_negative = false;
  bool push = false;   // columns sum to one instead of rows
  bool as_is = false;  // skips the checks of sums and connectivity
};

/// A static schedule from a list of weights, diagonal included. Checks that ranks are in range, no entry
/// appears twice, weights are finite and not negative (unless allowed), rows (or columns) sum to one, and the
/// graph is connected. `origin` starts the error messages.
std::shared_ptr<Schedule> schedule_from_weights(Rank n, std::vector<Entry> entries,
                                                StoredOptions options = {},
                                                const std::string& origin = "weights");

/// A static schedule from edges (from, to), undirected by default, with the same checks.
std::shared_ptr<Schedule> schedule_from_edges(Rank n, const std::vector<std::pair<Rank, Rank>>& edges,
                                              Weights weights, bool directed = false,
                                              const std::string& origin = "edges");

}  // namespace starling::topology

namespace starling {
using topology::schedule_from_edges;
using topology::schedule_from_weights;
using topology::StoredOptions;
}  // namespace starling
