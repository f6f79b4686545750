#include "starling/topology/iterated_eigenpair.h"

#include <Spectra/SymEigsSolver.h>
#include <algorithm>
#include <cmath>

// The only file that sees Spectra, whose solver takes half a minute to compile.

namespace starling::topology {
namespace {

// What Spectra asks of an operator.
struct Operator {
  using Scalar = double;
  Eigen::Index n;
  const std::function<void(const double*, double*)>& map;
  Eigen::Index rows() const { return n; }
  Eigen::Index cols() const { return n; }
  void perform_op(const double* x, double* y) const { map(x, y); }
};

constexpr Eigen::Index kMostRestarts = 300;  // a chain's eigenvalues lie too close for any number

}  // namespace

std::optional<EigenPair> iterated_eigenpair(Eigen::Index n,
                                            const std::function<void(const double*, double*)>& map,
                                            EigenEnd end) {
  Operator op{n, map};
  Spectra::SymEigsSolver<Operator> solver(op, 1, std::min<Eigen::Index>(n, 64));
  // A fixed start that is not a symmetric vector of any graph here.
  Eigen::VectorXd start(n);
  for (Eigen::Index i = 0; i < n; ++i)
    start[i] = std::cos(1.0 + 2.3 * static_cast<double>(i) + 1e-3 * static_cast<double>(i % 97));
  start.array() -= start.mean();
  solver.init(start.data());
  solver.compute(end == EigenEnd::largest ? Spectra::SortRule::LargestAlge : Spectra::SortRule::SmallestAlge,
                 kMostRestarts, 1e-13);
  if (solver.info() != Spectra::CompInfo::Successful) return std::nullopt;
  return EigenPair{solver.eigenvalues()[0], solver.eigenvectors(1).col(0)};
}

}  // namespace starling::topology
