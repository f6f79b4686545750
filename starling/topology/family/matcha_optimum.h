#pragma once

#include <vector>

#include "starling/topology/edge_coloring.h"

namespace starling::topology::family {

/// How often MATCHA uses each matching, and the weight it gives to an active edge.
struct MatchaOptimum {
  std::vector<double> probabilities;
  double connectivity = 0;    // lambda_2 of the expected Laplacian
  double optimality_gap = 0;  // certified: no probabilities within the budget reach connectivity + gap
  double edge_weight = 0;
  double mean_square_rho = 0;
};

/// p maximises lambda_2(sum p_j L_j) under 0 <= p_j <= 1 and sum p_j <= budget * matchings; then the edge
/// weight minimises the mean-square rho. Deterministic.
MatchaOptimum optimize_matcha(Rank n, const std::vector<Partners>& matchings, double budget);

}  // namespace starling::topology::family
