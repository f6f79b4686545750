#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/base/random.h"
#include "starling/topology/family/common.h"
#include "starling/topology/family/list.h"

namespace starling::topology::family {
namespace {

constexpr int kAttempts = 1000;
constexpr double kMostEdges = 1e8;
constexpr double kHopeless = 40;  // a connected draw has a probability of about e^-40

// Draws each pair with probability p by jumping from edge to edge: O(edges), not O(n^2).
std::vector<std::pair<Rank, Rank>> draw_edges(Rank n, double p, Random& random) {
  std::vector<std::pair<Rank, Rank>> edges;
  const std::int64_t pairs = static_cast<std::int64_t>(n) * (n - 1) / 2;
  const double log_miss = std::log1p(-p);
  Rank row = 1;
  std::int64_t row_start = 0;  // pairs (row, 0..row-1) are numbered from here
  for (std::int64_t at = 0; at < pairs; ++at) {
    if (p < 1) {
      const double gap = std::floor(std::log1p(-random.uniform()) / log_miss);
      if (gap >= static_cast<double>(pairs - at)) break;
      at += static_cast<std::int64_t>(gap);
    }
    while (at - row_start >= row) row_start += row++;
    edges.emplace_back(static_cast<Rank>(at - row_start), row);
  }
  return edges;
}

}  // namespace

Family erdos_renyi() {
  return {.name = "erdos-renyi",
          .summary = "each pair with probability p, redrawn until connected",
          .parameters = {{"p", "0.5", "probability of an edge"}, weights_parameter("metropolis")},
          .make =
              [](const Parameters& parameters, const TopologySetting& setting) {
                const double p = parameters.number("p", 0, 1);
                const double edges = p * setting.n * (setting.n - 1.0) / 2;
                if (edges > kMostEdges)
                  throw InvalidArgument(fmt::format(
                      "{}: p={} on {} ranks means about {:.2g} edges, too many to store (limit {:.2g})",
                      parameters.owner(), p, setting.n, edges, kMostEdges));
                // A rank is isolated with probability (1-p)^(n-1); if many are, no draw will ever be
                // connected.
                const double alone = setting.n * std::exp((setting.n - 1.0) * std::log1p(-p));
                if (setting.n > 1 && alone > kHopeless)
                  throw InvalidArgument(
                      fmt::format("{}: with p={} about {:.2g} of {} ranks have no edge; try p above {:.3g}",
                                  parameters.owner(), p, alone, setting.n, std::log(setting.n) / setting.n));
                for (int attempt = 0; attempt < kAttempts && (p > 0 || setting.n == 1); ++attempt) {
                  Random random(parameters.seed(), static_cast<std::uint64_t>(attempt), stream::kErdosRenyi);
                  const auto graph =
                      std::make_shared<StoredGraph>(setting.n, draw_edges(setting.n, p, random), false);
                  if (!unreachable(*graph)) return weighted(graph, parameters);
                }
                throw InvalidArgument(fmt::format(
                    "{}: none of {} graphs with p={} on {} ranks was connected; try p above {:.3g}",
                    parameters.owner(), kAttempts, p, setting.n, std::log(setting.n) / setting.n));
              },
          .random = true};
}

}  // namespace starling::topology::family
