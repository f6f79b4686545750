#include "starling/simulate/objective/quadratic.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/simulate/node_random.h"
#include "starling/simulate/objective/list.h"

namespace starling::simulate {

Quadratic::Quadratic(Rank nodes, Data data) : Objective(nodes, data.start.size()), data_(std::move(data)) {
  const std::size_t size = static_cast<std::size_t>(nodes) * dim();
  if (data_.a.size() != size || data_.b.size() != size)
    throw InvalidArgument(
        fmt::format("a quadratic of {} nodes and {} coordinates needs {} values of a and of b, not {} and {}",
                    nodes, dim(), size, data_.a.size(), data_.b.size()));
}

void Quadratic::start(Rank, std::span<double> x) const {
  std::ranges::copy(data_.start, x.begin());
}

void Quadratic::exact_gradient(Rank node, std::span<const double> x, std::span<double> out) const {
  const std::size_t row = static_cast<std::size_t>(node) * dim();
  for (std::size_t k = 0; k < dim(); ++k) out[k] = data_.a[row + k] * (x[k] - data_.b[row + k]);
}

void Quadratic::gradient(Rank node, Step step, std::span<const double> x, std::span<double> out) const {
  exact_gradient(node, x, out);
  if (data_.noise == 0) return;
  Random random = node_random(data_.seed, node, step, stream::kObjectiveBatch);
  for (double& value : out) value += data_.noise * random.normal();
}

double Quadratic::value(std::span<const double> x) const {
  double sum = 0;
  for (std::size_t row = 0; row < data_.a.size(); row += dim())
    for (std::size_t k = 0; k < dim(); ++k) {
      const double distance = x[k] - data_.b[row + k];
      sum += 0.5 * data_.a[row + k] * distance * distance;
    }
  return sum / nodes();
}

std::optional<std::vector<double>> Quadratic::minimizer() const {
  std::vector<double> where(dim());
  for (std::size_t k = 0; k < dim(); ++k) {
    double curvature = 0, pull = 0;
    for (std::size_t row = 0; row < data_.a.size(); row += dim()) {
      curvature += data_.a[row + k];
      pull += data_.a[row + k] * data_.b[row + k];
    }
    if (!(curvature > 0)) return std::nullopt;
    where[k] = pull / curvature;
  }
  return where;
}

namespace objective {
namespace {

// Curvatures range from 1 / condition to 1, and each node's is within 1 +- spread of that; minima are spread
// around a common one.
ObjectivePtr make_quadratic(const Parameters& given, const ObjectiveSetting& setting) {
  const double heterogeneity = given.number("heterogeneity", 0, 1e9);
  const double condition = given.number("condition", 1, 1e12);
  const double spread = given.number("spread", 0, 1);
  Quadratic::Data data;
  data.noise = given.number("noise", 0, 1e9);
  data.seed = setting.seed;
  data.start.assign(setting.dim, 0.0);
  Random common(setting.seed, 0, stream::kObjective);
  std::vector<double> curvature(setting.dim), center(setting.dim);
  for (std::size_t k = 0; k < setting.dim; ++k) {
    const double share = setting.dim > 1 ? static_cast<double>(k) / static_cast<double>(setting.dim - 1) : 1;
    curvature[k] = std::pow(condition, share - 1);
    center[k] = common.normal();
  }
  for (Rank node = 0; node < setting.nodes; ++node) {
    Random own = node_random(setting.seed, node, 0, stream::kObjectiveNode);
    for (std::size_t k = 0; k < setting.dim; ++k) {
      data.a.push_back(curvature[k] * (1 + spread * (2 * own.uniform() - 1)));
      data.b.push_back(center[k] + heterogeneity * own.normal());
    }
  }
  return std::make_shared<Quadratic>(setting.nodes, std::move(data));
}

}  // namespace

ObjectiveFamily quadratic() {
  return {"quadratic",
          "f_i(x) = 1/2 sum_k a_ik (x_k - b_ik)^2",
          {{"heterogeneity", "1", "distance of the nodes' minima from a common point, per coordinate"},
           {"condition", "10", "largest over smallest curvature"},
           {"spread", "0.5", "relative difference of the nodes' curvatures"},
           {"noise", "0", "standard deviation of the noise on each coordinate of a gradient"}},
          make_quadratic};
}

}  // namespace objective
}  // namespace starling::simulate
