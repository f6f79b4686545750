#pragma once

#include <cmath>

#include "starling/simulate/node_random.h"
#include "starling/simulate/objective_registry.h"

namespace starling::simulate::objective {

/// The source of samples for linear models: normal rows, and a true x of each node, which is a common one
/// plus heterogeneity times one of its own, both of about the same length.
class LinearTruth {
 public:
  LinearTruth(const ObjectiveSetting& setting, double length, double heterogeneity)
      : setting_(setting),
        deviation_(length / std::sqrt(static_cast<double>(setting.dim))),
        heterogeneity_(heterogeneity),
        common_(setting.dim) {
    Random random(setting.seed, 0, stream::kObjective);
    for (double& value : common_) value = deviation_ * random.normal();
  }

  /// The random numbers of a node, whose samples come in order; its true x is drawn with the first sample.
  Random& of(Rank node, std::uint32_t sample) {
    if (sample > 0) return random_;
    random_ = node_random(setting_.seed, node, 0, stream::kObjectiveNode);
    own_ = common_;
    for (double& value : own_) value += heterogeneity_ * deviation_ * random_.normal();
    return random_;
  }

  /// Fills a row and returns its true margin.
  double draw(std::span<float> row) {
    double margin = 0;
    for (std::size_t k = 0; k < row.size(); ++k) {
      row[k] = static_cast<float>(random_.normal());
      margin += static_cast<double>(row[k]) * own_[k];
    }
    return margin;
  }

 private:
  ObjectiveSetting setting_;
  double deviation_, heterogeneity_;
  std::vector<double> common_, own_;
  Random random_{0, 0, 0};
};

}  // namespace starling::simulate::objective
