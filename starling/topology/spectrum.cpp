#include "starling/topology/spectrum.h"

#include <Spectra/SymEigsSolver.h>
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include <Eigen/Dense>
#include <Eigen/Sparse>

#include "starling/base/error.h"

namespace starling {
namespace {

// What Spectra asks of an operator: a symmetric map x -> y.
template <typename Map>
struct Operator {
  using Scalar = double;
  Eigen::Index n;
  Map map;
  Eigen::Index rows() const { return n; }
  Eigen::Index cols() const { return n; }
  void perform_op(const double* x, double* y) const { map(x, y); }
};

struct EigenPair {
  double value;
  Eigen::VectorXd vector;
};

constexpr Eigen::Index kMostRestarts = 300;  // a chain's eigenvalues lie too close for any number

template <typename Map>
std::optional<EigenPair> extreme_pair(Eigen::Index n, const Map& map, Spectra::SortRule rule) {
  Operator<Map> op{n, map};
  Spectra::SymEigsSolver<Operator<Map>> solver(op, 1, std::min<Eigen::Index>(n, 64));
  // A fixed start that is not a symmetric vector of any graph here.
  Eigen::VectorXd start(n);
  for (Eigen::Index i = 0; i < n; ++i)
    start[i] = std::cos(1.0 + 2.3 * static_cast<double>(i) + 1e-3 * static_cast<double>(i % 97));
  start.array() -= start.mean();
  solver.init(start.data());
  solver.compute(rule, kMostRestarts, 1e-13);
  if (solver.info() != Spectra::CompInfo::Successful) return std::nullopt;
  return EigenPair{solver.eigenvalues()[0], solver.eigenvectors(1).col(0)};
}

using MapVector = Eigen::Map<Eigen::VectorXd>;
using ConstMapVector = Eigen::Map<const Eigen::VectorXd>;

Eigen::MatrixXd dense(const RoundMatrix& round) {
  Eigen::MatrixXd w = Eigen::MatrixXd::Zero(round.size(), round.size());
  for (const Entry& entry : round.entries()) w(entry.receiver, entry.sender) += entry.weight;
  return w;
}

// |eigenvalue k| of rank 0's row.
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
    return product.bdcSvd().singularValues()[0];
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
  const auto pair = extreme_pair(n, square, Spectra::SortRule::LargestAlge);
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
  const auto pair = extreme_pair(n, mean_square, Spectra::SortRule::LargestAlge);
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
  const auto values = Eigen::EigenSolver<Eigen::MatrixXd>(dense(round), false).eigenvalues();
  std::vector<double> moduli;
  for (Eigen::Index i = 0; i < n; ++i) moduli.push_back(std::abs(values[i]));
  std::sort(moduli.rbegin(), moduli.rend());
  return moduli[1];
}

std::optional<double> least_eigenvalue(const RoundMatrix& round) {
  const Eigen::Index n = round.size();
  if (n == 1) return 1.0;
  if (n <= kDenseLimit) {
    const Eigen::MatrixXd w = dense(round);
    return Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(w, Eigen::EigenvaluesOnly).eigenvalues()[0];
  }
  const auto apply = [&](const double* x, double* y) { round.multiply(x, y); };
  const auto pair = extreme_pair(n, apply, Spectra::SortRule::SmallestAlge);
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

Extremes laplacian_extremes(const Graph& graph) {
  const Eigen::Index n = graph.size();
  std::vector<Eigen::Triplet<double>> entries;
  std::vector<Rank> neighbors;
  for (Rank i = 0; i < n; ++i) {
    neighbors.clear();
    graph.append_out(i, neighbors);
    entries.emplace_back(i, i, static_cast<double>(neighbors.size()));
    for (const Rank j : neighbors) entries.emplace_back(i, j, -1.0);
  }
  Eigen::SparseMatrix<double> laplacian(n, n);
  laplacian.setFromTriplets(entries.begin(), entries.end());
  if (n <= 4 * kDenseLimit) {
    const auto values =
        Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(Eigen::MatrixXd(laplacian), Eigen::EigenvaluesOnly)
            .eigenvalues();
    return {values[std::min<Eigen::Index>(1, n - 1)], values[n - 1]};
  }
  const auto multiply = [&](const double* x, double* y) {
    MapVector(y, n) = laplacian * ConstMapVector(x, n);
  };
  const auto most = extreme_pair(n, multiply, Spectra::SortRule::LargestAlge);
  // The least eigenvalue but zero is the largest of the inverse, with the constant vector projected out.
  constexpr double kShift = 1e-3;
  Eigen::SparseMatrix<double> shifted = laplacian;
  for (Eigen::Index i = 0; i < n; ++i) shifted.coeffRef(i, i) += kShift;
  const Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>> factor(shifted);
  const auto invert = [&](const double* x, double* y) {
    const ConstMapVector in(x, n);
    Eigen::VectorXd centred = in.array() - in.mean();
    Eigen::VectorXd solved = factor.solve(centred);
    MapVector(y, n) = solved.array() - solved.mean();
  };
  const auto least = extreme_pair(n, invert, Spectra::SortRule::LargestAlge);
  if (!most || !least) throw Error("the Laplacian's eigenvalues did not converge; use weights=metropolis");
  return {1 / least->value - kShift, most->value};
}

Extremes circulant_laplacian_extremes(Rank n, std::span<const Rank> offsets) {
  Exchange row;
  row.self_weight = 0;
  for (const Rank offset : offsets) row.hear(offset, 1);
  const auto degree = static_cast<double>(offsets.size());
  Extremes extremes{2 * degree, 0};
  for (Rank k = 1; k <= n / 2; ++k) {
    const double value = degree - circulant_eigenvalue(row, n, k).real();
    extremes.least = std::min(extremes.least, value);
    extremes.most = std::max(extremes.most, value);
  }
  return extremes;
}

}  // namespace starling
