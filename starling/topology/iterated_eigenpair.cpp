#include <Spectra/SymEigsSolver.h>
#include <algorithm>
#include <cmath>

#include "starling/topology/spectrum_parts.h"

// The only file that includes Spectra, whose solver takes half a minute to compile.

namespace starling::topology {
namespace {

// The operator interface that Spectra expects.
struct Operator {
  using Scalar = double;
  Eigen::Index n;
  const std::function<void(const double*, double*)>& map;
  Eigen::Index rows() const { return n; }
  Eigen::Index cols() const { return n; }
  void perform_op(const double* x, double* y) const { map(x, y); }
};

}  // namespace

std::optional<EigenPairs> iterated_eigenpairs(Eigen::Index n,
                                              const std::function<void(const double*, double*)>& map,
                                              EigenEnd end, const Iteration& iteration) {
  Operator op{n, map};
  Spectra::SymEigsSolver<Operator> solver(op, iteration.pairs, std::min(n, iteration.basis));
  solver.init(iteration.start.data());
  solver.compute(end == EigenEnd::largest ? Spectra::SortRule::LargestAlge : Spectra::SortRule::SmallestAlge,
                 iteration.restarts, iteration.tolerance);
  if (solver.info() != Spectra::CompInfo::Successful) return std::nullopt;
  return EigenPairs{solver.eigenvalues(), solver.eigenvectors(iteration.pairs)};
}

std::optional<EigenPair> iterated_eigenpair(Eigen::Index n,
                                            const std::function<void(const double*, double*)>& map,
                                            EigenEnd end) {
  // A fixed start vector without the symmetry of any graph here.
  Iteration iteration{.start = Eigen::VectorXd(n)};
  for (Eigen::Index i = 0; i < n; ++i)
    iteration.start[i] = std::cos(1.0 + 2.3 * static_cast<double>(i) + 1e-3 * static_cast<double>(i % 97));
  iteration.start.array() -= iteration.start.mean();
  const auto pairs = iterated_eigenpairs(n, map, end, iteration);
  if (!pairs) return std::nullopt;
  return EigenPair{pairs->values[0], pairs->vectors.col(0)};
}

}  // namespace starling::topology
