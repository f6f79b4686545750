#pragma once

#include <string>
#include <vector>

#include "starling/topology/matrix.h"

namespace starling::topology {

/// The content of a graph file, not checked any further.
struct GraphFile {
  bool weighted = false;       // entries carry weights (a matrix, or edges with a third column)
  std::vector<Entry> entries;  // receiver, sender, weight; an edge without weight is (first, second, 0)
};

enum class GraphFormat { automatic, edges, matrix };

/// Reads an edge list or a weight matrix, as CSV (commas, semicolons or white space; `#` comments; a header
/// line is skipped) or as JSON: [[...], ...], {"edges": [[receiver, sender, weight], ...]}, {"matrix":
/// [[...]]}, or what `starling topo --json` prints for a static topology. `n` distinguishes a matrix from an
/// edge list where both would fit.
GraphFile read_graph_file(const std::string& path, GraphFormat format, Rank n);

}  // namespace starling::topology

namespace starling {
using topology::GraphFile;
using topology::read_graph_file;
}  // namespace starling
