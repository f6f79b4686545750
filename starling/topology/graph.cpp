#include "starling/topology/graph.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/topology/matrix.h"
#include "starling/topology/spectrum.h"

namespace starling::topology {

Parameter weights_parameter(const std::string& fallback) {
  return {"weights", fallback, "metropolis, uniform, laplacian or push"};
}

Weights read_weights(const Parameters& parameters) {
  const std::string& name = parameters.choice("weights", {"metropolis", "uniform", "laplacian", "push"});
  if (name == "metropolis") return Weights::metropolis;
  if (name == "uniform") return Weights::uniform;
  return name == "laplacian" ? Weights::laplacian : Weights::push;
}

void StoredGraph::Lists::append(Rank rank, std::vector<Rank>& out) const {
  const auto r = static_cast<std::size_t>(rank);
  out.insert(out.end(), neighbor.begin() + static_cast<std::ptrdiff_t>(start[r]),
             neighbor.begin() + static_cast<std::ptrdiff_t>(start[r + 1]));
}

Rank StoredGraph::Lists::degree(Rank rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return static_cast<Rank>(start[r + 1] - start[r]);
}

StoredGraph::StoredGraph(Rank n, const std::vector<std::pair<Rank, Rank>>& edges, bool directed)
    : Graph(n), directed_(directed) {
  const auto build = [n](std::vector<std::pair<Rank, Rank>> pairs) {
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    Lists lists;
    lists.start.assign(static_cast<std::size_t>(n) + 1, 0);
    lists.neighbor.reserve(pairs.size());
    for (const auto& [from, to] : pairs) {
      ++lists.start[static_cast<std::size_t>(from) + 1];
      lists.neighbor.push_back(to);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) lists.start[i + 1] += lists.start[i];
    return lists;
  };
  auto forward = edges;
  std::vector<std::pair<Rank, Rank>> reversed;
  reversed.reserve(edges.size());
  for (const auto& [from, to] : edges) reversed.emplace_back(to, from);
  if (directed_) {
    in_ = build(std::move(reversed));
  } else {
    forward.insert(forward.end(), reversed.begin(), reversed.end());
  }
  out_ = build(std::move(forward));
}

std::shared_ptr<const Graph> graph_of(const Schedule& schedule, bool as_undirected) {
  constexpr std::int64_t kMostEdges = 100'000'000;
  const auto check = [&](std::int64_t edges) {
    if (edges > kMostEdges)
      throw InvalidArgument(fmt::format("{} on {} ranks has more than {} edges, too many to store",
                                        schedule.name(), schedule.size(), kMostEdges));
  };
  std::vector<std::pair<Rank, Rank>> edges;
  Exchange exchange;
  std::int64_t in_groups = 0;
  for (Rank rank = 0; rank < schedule.size(); ++rank) {
    schedule.exchange(0, rank, exchange);
    for (const Destination& destination : exchange.destinations) edges.emplace_back(rank, destination.rank);
    in_groups += exchange.group.size() * (1 + static_cast<std::int64_t>(exchange.sources.size()));
    check(static_cast<std::int64_t>(edges.size()) + in_groups);
  }
  if (in_groups > 0) {
    edges.clear();
    for (const Entry& entry : RoundMatrix(schedule, 0).entries())
      if (entry.sender != entry.receiver && entry.weight != 0)
        edges.emplace_back(entry.sender, entry.receiver);
  }
  return std::make_shared<StoredGraph>(schedule.size(), edges, !as_undirected);
}

std::optional<Rank> unreachable(const Graph& graph) {
  const auto missed = [&](bool forward) -> std::optional<Rank> {
    std::vector<bool> seen(static_cast<std::size_t>(graph.size()), false);
    std::vector<Rank> open = {0};
    std::vector<Rank> neighbors;
    seen[0] = true;
    while (!open.empty()) {
      const Rank at = open.back();
      open.pop_back();
      neighbors.clear();
      if (forward) {
        graph.append_out(at, neighbors);
      } else {
        graph.append_in(at, neighbors);
      }
      for (const Rank next : neighbors) {
        if (seen[static_cast<std::size_t>(next)]) continue;
        seen[static_cast<std::size_t>(next)] = true;
        open.push_back(next);
      }
    }
    const auto first = std::find(seen.begin(), seen.end(), false);
    if (first == seen.end()) return std::nullopt;
    return static_cast<Rank>(first - seen.begin());
  };
  if (const auto rank = missed(true)) return rank;
  return graph.directed() ? missed(false) : std::nullopt;
}

GraphSchedule::GraphSchedule(std::shared_ptr<const Graph> graph, Weights weights)
    : Schedule(graph->size()), graph_(std::move(graph)), weights_(weights) {
  if (graph_->directed() && (weights == Weights::metropolis || weights == Weights::laplacian))
    throw InvalidArgument(
        "metropolis and laplacian weights need an undirected graph; use weights=uniform or push");
  if (weights == Weights::laplacian && graph_->size() > 1) {
    const Extremes extremes = laplacian_extremes(*graph_);
    laplacian_step_ = 2 / (extremes.least + extremes.most);
  }
}

void GraphSchedule::fill(Step /*step*/, Rank rank, Exchange& out) const {
  thread_local std::vector<Rank> neighbors;
  neighbors.clear();
  graph_->append_out(rank, neighbors);
  for (const Rank j : neighbors) out.add_destination(j);
  if (graph_->directed()) {
    neighbors.clear();
    graph_->append_in(rank, neighbors);
  }
  if (weights_ == Weights::push) {
    for (const Rank j : neighbors) out.add_source(j, 1.0 / (graph_->out_degree(j) + 1.0));
    out.self_weight = 1.0 / (graph_->out_degree(rank) + 1.0);
    return;
  }
  const auto degree = static_cast<Rank>(neighbors.size());
  long double rest = 1;  // a star with millions of spokes adds up as many rounding errors
  for (const Rank j : neighbors) {
    double weight = laplacian_step_;
    if (weights_ == Weights::metropolis) weight = 1.0 / (1.0 + std::max(degree, graph_->out_degree(j)));
    if (weights_ == Weights::uniform) weight = 1.0 / (degree + 1.0);
    rest -= weight;
    out.add_source(j, weight);
  }
  out.self_weight = weights_ == Weights::uniform ? 1.0 / (degree + 1.0) : static_cast<double>(rest);
}

}  // namespace starling::topology
