#include "starling/simulate/objective/linear.h"
#include "starling/simulate/objective/linear_truth.h"
#include "starling/simulate/objective/list.h"

namespace starling::simulate::objective {
namespace {

ObjectivePtr make_least_squares(const Parameters& given, const ObjectiveSetting& setting) {
  LinearObjective::Options options;
  options.loss = LinearLoss::squares;
  options.samples = static_cast<std::uint32_t>(given.integer("samples", 1, 10'000'000));
  options.batch = static_cast<std::uint32_t>(given.integer("batch", 0, options.samples));
  const double noise = given.number("noise", 0, 1e6);
  LinearTruth truth(setting, 1, given.number("heterogeneity", 0, 1e6));
  const auto fill = [&](Rank node, std::uint32_t sample, std::span<float> row) {
    Random& random = truth.of(node, sample);
    const double margin = truth.draw(row);
    return margin + noise * random.normal();
  };
  return std::make_shared<LinearObjective>(setting, options, fill);
}

}  // namespace

ObjectiveFamily least_squares() {
  return {"least-squares",
          "linear regression: the mean of (a . x - b)^2 / 2 over a node's samples",
          {{"samples", "100", "per node"},
           {"heterogeneity", "1", "targets come from x* + this times a node's own vector as long as x*"},
           {"noise", "0.1", "standard deviation of the noise on the targets"},
           {"batch", "0", "samples per gradient, redrawn every step; 0: all"}},
          make_least_squares};
}

}  // namespace starling::simulate::objective
