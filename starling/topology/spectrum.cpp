#include "starling/topology/spectrum.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include <Eigen/Core>

#include "starling/topology/spectrum_parts.h"

namespace starling::topology {
namespace {

using MapVector = Eigen::Map<Eigen::VectorXd>;
using ConstMapVector = Eigen::Map<const Eigen::VectorXd>;

// The k-th eigenvalue of the circulant whose first row is rank 0's exchange.
std::complex<double> circulant_eigenvalue(const Exchange& row, Rank n, Rank k) {
  std::complex<double> sum = row.self_weight;
  for (const Source& source : row.sources) {
    const auto turns = static_cast<std::uint64_t>(source.rank) * static_cast<std::uint64_t>(k) %
                       static_cast<std::uint64_t>(n);
    const double angle = 2 * std::numbers::pi * static_cast<double>(turns) / n;
    sum += source.weight * std::complex<double>(std::cos(angle), std::sin(angle));
  }
  return sum;
}

}  // namespace

std::optional<double> deviation_norm(std::span<const RoundMatrix> rounds) {
  const Eigen::Index n = rounds.front().size();
  if (n == 1) return 0.0;
  if (n <= kDenseLimit) {
    Eigen::MatrixXd product = Eigen::MatrixXd::Identity(n, n);
    for (const RoundMatrix& round : rounds) product = dense(round) * product;
    product.array() -= 1.0 / static_cast<double>(n);
    return largest_singular_value(product);
  }
  Eigen::VectorXd left(n);
  Eigen::VectorXd right(n);
  const auto apply = [&](const double* x) {  // left = (P - J) x
    left = ConstMapVector(x, n);
    const double mean = left.mean();
    for (const RoundMatrix& round : rounds) {
      round.multiply(left.data(), right.data());
      left.swap(right);
    }
    left.array() -= mean;
  };
  const auto square = [&](const double* x, double* y) {  // y = (P - J)^T (P - J) x
    apply(x);
    const double mean = left.mean();
    for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
      round->multiply_transposed(left.data(), right.data());
      left.swap(right);
    }
    MapVector(y, n) = left.array() - mean;
  };
  const auto pair = iterated_eigenpair(n, square, EigenEnd::largest);
  if (!pair) return std::nullopt;
  apply(pair->vector.data());  // the norm of the image keeps the digits that a square root would lose
  return left.norm() / pair->vector.norm();
}

std::optional<std::vector<double>> worst_direction(std::span<const RoundMatrix> samples) {
  const Eigen::Index n = samples.front().size();
  if (n == 1) return std::vector<double>{1.0};
  Eigen::VectorXd image(n);
  Eigen::VectorXd back(n);
  const auto mean_square = [&](const double* x, double* y) {
    MapVector out(y, n);
    out.setZero();
    for (const RoundMatrix& round : samples) {
      round.multiply(x, image.data());
      image.array() -= ConstMapVector(x, n).mean();
      round.multiply_transposed(image.data(), back.data());
      out += back;
      out.array() -= image.mean();
    }
    out /= static_cast<double>(samples.size());
  };
  if (n <= 2) {
    const double side = 1 / std::sqrt(2.0);
    return std::vector<double>{side, -side};
  }
  const auto pair = iterated_eigenpair(n, mean_square, EigenEnd::largest);
  if (!pair) return std::nullopt;
  const Eigen::VectorXd unit = pair->vector.normalized();
  return std::vector<double>(unit.begin(), unit.end());
}

double circulant_deviation_norm(const Circulant& schedule, Step first, Step count) {
  const Rank n = schedule.size();
  std::vector<Exchange> rows(static_cast<std::size_t>(count));
  for (Step t = 0; t < count; ++t) schedule.round(first + t, rows[static_cast<std::size_t>(t)]);
  double largest = 0;
  // Real rows: eigenvalues k and n-k are conjugate.
  for (Rank k = 1; k <= n / 2; ++k) {
    double modulus = 1;
    for (const Exchange& row : rows) modulus *= std::abs(circulant_eigenvalue(row, n, k));
    largest = std::max(largest, modulus);
  }
  return largest;
}

std::optional<double> second_modulus(const RoundMatrix& round) {
  const Eigen::Index n = round.size();
  if (n > kDenseLimit) return std::nullopt;
  if (n == 1) return 0.0;
  return eigenvalue_moduli(dense(round))[1];
}

std::optional<double> least_eigenvalue(const RoundMatrix& round) {
  const Eigen::Index n = round.size();
  if (n == 1) return 1.0;
  if (n <= kDenseLimit) return symmetric_eigenvalues(dense(round))[0];
  const auto apply = [&](const double* x, double* y) { round.multiply(x, y); };
  const auto pair = iterated_eigenpair(n, apply, EigenEnd::least);
  if (!pair) return std::nullopt;
  return pair->value;
}

double circulant_least_eigenvalue(const Circulant& schedule, Step step) {
  Exchange row;
  schedule.round(step, row);
  double least = 1;
  for (Rank k = 0; k <= schedule.size() / 2; ++k)
    least = std::min(least, circulant_eigenvalue(row, schedule.size(), k).real());
  return least;
}

Extremes circulant_laplacian_extremes(Rank n, std::span<const Rank> offsets) {
  Exchange row;
  row.self_weight = 0;
  for (const Rank offset : offsets) row.add_source(offset, 1);
  const auto degree = static_cast<double>(offsets.size());
  Extremes extremes{2 * degree, 0};
  for (Rank k = 1; k <= n / 2; ++k) {
    const double value = degree - circulant_eigenvalue(row, n, k).real();
    extremes.least = std::min(extremes.least, value);
    extremes.most = std::max(extremes.most, value);
  }
  return extremes;
}

}  // namespace starling::topology
