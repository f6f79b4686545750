#include <algorithm>
#include <vector>

#include <Eigen/Sparse>

#include "starling/base/error.h"
#include "starling/topology/spectrum.h"
#include "starling/topology/spectrum_parts.h"

namespace starling::topology {

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
    const Eigen::VectorXd values = symmetric_eigenvalues(Eigen::MatrixXd(laplacian));
    return {values[std::min<Eigen::Index>(1, n - 1)], values[n - 1]};
  }
  const auto multiply = [&](const double* x, double* y) {
    Eigen::Map<Eigen::VectorXd>(y, n) = laplacian * Eigen::Map<const Eigen::VectorXd>(x, n);
  };
  const auto most = iterated_eigenpair(n, multiply, EigenEnd::largest);
  // The least eigenvalue above zero is the largest one of the inverse, with the constant vector projected
  // out.
  constexpr double kShift = 1e-3;
  Eigen::SparseMatrix<double> shifted = laplacian;
  for (Eigen::Index i = 0; i < n; ++i) shifted.coeffRef(i, i) += kShift;
  const Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>> factor(shifted);
  const auto invert = [&](const double* x, double* y) {
    const Eigen::Map<const Eigen::VectorXd> in(x, n);
    Eigen::VectorXd centered = in.array() - in.mean();
    Eigen::VectorXd solved = factor.solve(centered);
    Eigen::Map<Eigen::VectorXd>(y, n) = solved.array() - solved.mean();
  };
  const auto least = iterated_eigenpair(n, invert, EigenEnd::largest);
  if (!most || !least) throw Error("the Laplacian's eigenvalues did not converge; use weights=metropolis");
  return {1 / least->value - kShift, most->value};
}

}  // namespace starling::topology
