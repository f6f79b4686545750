#include "starling/topology/family/common.h"

#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::topology::family {

Machines read_machines(const Parameters& parameters, Rank n) {
  const auto local = static_cast<Rank>(parameters.integer("local", 1, INT32_MAX));
  if (n == 1) return {1, 1};
  if (n % local != 0)
    throw InvalidArgument(
        fmt::format("{}: n = {} is not a multiple of local={}", parameters.owner(), n, local));
  return {n / local, local};
}

std::shared_ptr<Schedule> weighted(std::shared_ptr<const Graph> graph, const Parameters& parameters,
                                   std::optional<double> metropolis_rho) {
  const Weights weights = read_weights(parameters);
  auto schedule = std::make_shared<GraphSchedule>(std::move(graph), weights);
  if (weights == Weights::metropolis) schedule->set_known_rho(metropolis_rho);
  return schedule;
}

std::shared_ptr<Schedule> weighted_circulant(Rank n, std::vector<Rank> offsets, const Parameters& parameters,
                                             bool directed, std::optional<double> uniform_rho) {
  const Weights weights = read_weights(parameters);
  if (directed && (weights == Weights::metropolis || weights == Weights::laplacian))
    throw InvalidArgument(fmt::format(
        "{}: metropolis and laplacian weights need an undirected graph; use weights=uniform or push",
        parameters.owner()));
  auto schedule = std::make_shared<CirculantGraph>(n, std::move(offsets), weights);
  if (weights != Weights::laplacian && uniform_rho) schedule->set_known_rho(*uniform_rho);
  return schedule;
}

}  // namespace starling::topology::family
