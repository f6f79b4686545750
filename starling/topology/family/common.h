#pragma once

#include <cstdint>

#include "starling/topology/circulant.h"
#include "starling/topology/graph.h"
#include "starling/topology/registry.h"

// Helpers that several families share.

namespace starling::topology::family {

/// The split of n ranks into machines: n = machines * local, rank = machine * local + index.
struct Machines {
  Rank machines = 1;
  Rank local = 1;
};

/// Reads local=; throws unless it divides n. A single rank is one machine, whatever local= says.
Machines read_machines(const Parameters& parameters, Rank n);

/// A static schedule on a computed graph, with the family's formula for rho if Metropolis weights are used.
std::shared_ptr<Schedule> weighted(std::shared_ptr<const Graph> graph, const Parameters& parameters,
                                   std::optional<double> metropolis_rho = std::nullopt);

/// A static circulant graph with the weights in `parameters`; `directed` graphs reject Metropolis and
/// Laplacian.
std::shared_ptr<Schedule> weighted_circulant(Rank n, std::vector<Rank> offsets, const Parameters& parameters,
                                             bool directed, std::optional<double> uniform_rho = std::nullopt);

}  // namespace starling::topology::family
