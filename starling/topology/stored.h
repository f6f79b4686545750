#pragma once

#include <vector>

#include "starling/topology/graph.h"
#include "starling/topology/matrix.h"

namespace starling::topology {

/// What a program's own weights may be.
struct StoredOptions {
  bool allow_negative = false;
  bool push = false;   // columns sum to one instead of rows
  bool as_is = false;  // sums and connection are the program's own affair
};

/// A static schedule from a list of weights (the diagonal included). Checked: ranks in range, no entry twice,
/// finite and not negative (unless allowed), rows (or columns) that sum to one, connected. `origin` starts
/// the error messages.
std::shared_ptr<Schedule> schedule_from_weights(Rank n, std::vector<Entry> entries,
                                                StoredOptions options = {},
                                                const std::string& origin = "weights");

/// A static schedule from edges (from, to), undirected unless said otherwise, checked likewise.
std::shared_ptr<Schedule> schedule_from_edges(Rank n, const std::vector<std::pair<Rank, Rank>>& edges,
                                              Weights weights, bool directed = false,
                                              const std::string& origin = "edges");

}  // namespace starling::topology

namespace starling {
using topology::schedule_from_edges;
using topology::schedule_from_weights;
using topology::StoredOptions;
}  // namespace starling
