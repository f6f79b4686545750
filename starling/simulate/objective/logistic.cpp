#include <cmath>

#include "starling/simulate/node_random.h"
#include "starling/simulate/objective/linear.h"
#include "starling/simulate/objective/linear_truth.h"
#include "starling/simulate/objective/list.h"

namespace starling::simulate::objective {
namespace {

ObjectivePtr make_logistic(const Parameters& given, const ObjectiveSetting& setting) {
  LinearObjective::Options options;
  options.loss = LinearLoss::logistic;
  options.samples = static_cast<std::uint32_t>(given.integer("samples", 1, 10'000'000));
  options.batch = static_cast<std::uint32_t>(given.integer("batch", 0, options.samples));
  options.regularizer = given.number("regularizer", 0, 1e6);
  // Margins of the true model are normal with a standard deviation of about 2.
  LinearTruth truth(setting, 2, given.number("heterogeneity", 0, 1e6));
  const auto fill = [&](Rank node, std::uint32_t sample, std::span<float> row) {
    Random& random = truth.of(node, sample);
    const double margin = truth.draw(row);
    if (random.uniform() >= 1 / (1 + std::exp(-margin)))  // then the label is -1
      for (float& value : row) value = -value;
    return 0.0;
  };
  return std::make_shared<LinearObjective>(setting, options, fill);
}

}  // namespace

ObjectiveFamily logistic() {
  return {"logistic",
          "logistic regression with a regularizer that is not convex",
          {{"samples", "100", "per node"},
           {"heterogeneity", "1", "labels come from x* + this times a node's own vector as long as x*"},
           {"regularizer", "0.01", "rho of rho sum_k x_k^2 / (1 + x_k^2)"},
           {"batch", "0", "samples per gradient, redrawn every step; 0: all"}},
          make_logistic};
}

}  // namespace starling::simulate::objective
