#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

// Breadth-first, neighbors in ascending order.
std::vector<std::pair<Rank, Rank>> spanning_tree(const Graph& graph, Rank root) {
  std::vector<std::pair<Rank, Rank>> edges;
  std::vector<bool> seen(static_cast<std::size_t>(graph.size()), false);
  std::vector<Rank> queue = {root};
  std::vector<Rank> neighbors;
  seen[static_cast<std::size_t>(root)] = true;
  for (std::size_t head = 0; head < queue.size(); ++head) {
    neighbors.clear();
    graph.append_out(queue[head], neighbors);
    std::sort(neighbors.begin(), neighbors.end());
    for (const Rank next : neighbors) {
      if (seen[static_cast<std::size_t>(next)]) continue;
      seen[static_cast<std::size_t>(next)] = true;
      edges.emplace_back(queue[head], next);
      queue.push_back(next);
    }
  }
  return edges;
}

}  // namespace

Family bfs_tree() {
  return {.name = "bfs-tree",
          .summary = "breadth-first spanning tree of a graph",
          .parameters = {{"of", "", "the graph, a topology's name", ParameterKind::topology},
                         {"root", "0", "a rank"},
                         weights_parameter("metropolis")},
          .make = [](const Parameters& parameters, const TopologySetting& setting) {
            const SchedulePtr of = make_schedule(parameters.spec("of"), setting);
            const auto root = static_cast<Rank>(parameters.integer("root", 0, setting.n - 1));
            const auto graph = graph_of(*of, /*as_undirected=*/true);
            if (const auto rank = unreachable(*graph))
              throw InvalidArgument(fmt::format(
                  "bfs-tree: {} is not connected in round 0 (rank {} is cut off)", of->name(), *rank));
            return weighted(std::make_shared<StoredGraph>(setting.n, spanning_tree(*graph, root), false),
                            parameters);
          }};
}

}  // namespace starling::topology::family
