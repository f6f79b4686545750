#pragma once

#include <vector>

#include "starling/topology/edge_coloring.h"
#include "starling/topology/schedule.h"

namespace starling::topology::family {

/// The probability with which MATCHA uses each matching, and the weight of an active edge.
struct MatchaOptimum {
  std::vector<double> probabilities;
  double connectivity = 0;    // lambda_2 of the expected Laplacian
  double optimality_gap = 0;  // certified: no probabilities within the budget reach connectivity + gap
  double edge_weight = 0;
  double mean_square_rho = 0;
};

/// Finds p that maximizes lambda_2(sum p_j L_j) under 0 <= p_j <= 1 and sum p_j <= budget * matchings, then
/// the edge weight that minimizes the mean-square rho. Deterministic.
MatchaOptimum optimize_matcha(Rank n, const std::vector<Partners>& matchings, double budget);

/// W = I - a sum_j B_j L_j over matchings with Laplacians L_j and B_j ~ Bernoulli(p_j). Programs with their
/// own matchings construct one directly.
class Matcha final : public Schedule {
 public:
  Matcha(Rank n, std::vector<Partners> matchings, double budget, std::uint64_t seed);

  Step period() const override { return random() ? 0 : 1; }
  bool random() const override;
  std::optional<double> known_mean_square_rho() const override;
  const MatchaOptimum& optimum() const { return optimum_; }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override;

  std::vector<Partners> matchings_;
  MatchaOptimum optimum_;
  std::uint64_t seed_;
};

}  // namespace starling::topology::family
