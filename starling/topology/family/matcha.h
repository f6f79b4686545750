#pragma once

#include "starling/topology/edge_coloring.h"
#include "starling/topology/family/matcha_optimum.h"
#include "starling/topology/schedule.h"

namespace starling::topology::family {

/// W = I - a sum_j B_j L_j over matchings with Laplacians L_j and B_j ~ Bernoulli(p_j). Programs with
/// matchings of their own make one directly.
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
