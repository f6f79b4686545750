#include "starling/simulate/objective.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling::simulate {

Objective::Objective(Rank nodes, std::size_t dim) : nodes_(nodes), dim_(dim) {
  if (nodes < 1 || dim < 1)
    throw InvalidArgument(
        fmt::format("an objective needs at least 1 node and 1 coordinate, not {} and {}", nodes, dim));
}

void Objective::start(Rank, std::span<double> x) const {
  std::ranges::fill(x, 0.0);
}

void Objective::gradient(Rank node, Step step, std::span<const float> x, std::span<float> out) const {
  thread_local std::vector<double> wide_x, wide_out;
  wide_x.assign(x.begin(), x.end());
  wide_out.resize(out.size());
  gradient(node, step, std::span<const double>(wide_x), std::span<double>(wide_out));
  std::ranges::transform(wide_out, out.begin(), [](double value) { return static_cast<float>(value); });
}

void Objective::exact_gradient(Rank node, std::span<const double> x, std::span<double> out) const {
  gradient(node, 0, x, out);
}

void Objective::mean_gradient(std::span<const double> x, std::span<double> out) const {
  std::vector<double> one(dim_);
  std::ranges::fill(out, 0.0);
  for (Rank node = 0; node < nodes_; ++node) {
    exact_gradient(node, x, one);
    for (std::size_t k = 0; k < dim_; ++k) out[k] += one[k];
  }
  for (double& value : out) value /= nodes_;
}

double Objective::mean_gradient_norm(std::span<const double> x) const {
  std::vector<double> mean(dim_);
  mean_gradient(x, mean);
  double squares = 0;
  for (const double value : mean) squares += value * value;
  return std::sqrt(squares);
}

std::optional<double> Objective::least_value() const {
  const auto where = minimizer();
  if (!where) return std::nullopt;
  return value(*where);
}

std::optional<std::vector<double>> Objective::minimizer() const {
  return std::nullopt;
}

}  // namespace starling::simulate
