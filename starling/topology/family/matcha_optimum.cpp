#include <algorithm>
#include <cmath>
#include <numeric>

#include <Eigen/Sparse>

#include "starling/base/error.h"
#include "starling/topology/family/matcha.h"
#include "starling/topology/spectrum_parts.h"

namespace starling::topology::family {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;
using Sparse = Eigen::SparseMatrix<double>;

constexpr Index kDense = 200;    // up to here all eigenpairs are computed
constexpr Index kFewPairs = 10;  // with more nodes than this, only the lowest few pairs
constexpr double kShift = 1e-3;  // makes a Laplacian invertible
constexpr double kTolerance = 1e-7;

Sparse laplacian(Rank n, const std::vector<Partners>& matchings, const VectorXd& p) {
  std::vector<Eigen::Triplet<double>> entries;
  for (std::size_t j = 0; j < matchings.size(); ++j)
    for (Rank i = 0; i < n; ++i) {
      const Rank other = matchings[j][static_cast<std::size_t>(i)];
      if (other == i) continue;
      entries.emplace_back(i, i, p[static_cast<Index>(j)]);
      entries.emplace_back(i, other, -p[static_cast<Index>(j)]);
    }
  Sparse matrix(n, n);
  matrix.setFromTriplets(entries.begin(), entries.end());
  return matrix;
}

Iteration iteration_of(Index n, Index pairs, double tolerance) {
  Iteration iteration{
      .start = VectorXd(n), .pairs = pairs, .basis = 4 * kFewPairs, .restarts = 1000, .tolerance = tolerance};
  for (Index i = 0; i < n; ++i) iteration.start[i] = std::cos(1.0 + 2.3 * static_cast<double>(i));
  return iteration;
}

// Ascending, without the constant vector's zero.
EigenPairs lowest_pairs(const Sparse& matrix) {
  const Index n = matrix.rows();
  if (n <= kDense) {
    const EigenPairs all = symmetric_eigenpairs(MatrixXd(matrix));
    return {all.values.tail(n - 1), all.vectors.rightCols(n - 1)};
  }
  Sparse shifted = matrix;
  for (Index i = 0; i < n; ++i) shifted.coeffRef(i, i) += kShift;
  const Eigen::SimplicialLDLT<Sparse> factor(shifted);
  const auto invert = [&](const double* from, double* to) {
    const Eigen::Map<const VectorXd> x(from, n);
    const VectorXd centered = x.array() - x.mean();
    const VectorXd solved = factor.solve(centered);
    Eigen::Map<VectorXd>(to, n) = solved.array() - solved.mean();
  };
  const auto pairs = iterated_eigenpairs(n, invert, EigenEnd::largest, iteration_of(n, kFewPairs, 1e-10));
  if (!pairs) throw Error("matcha: the Laplacian's eigenvalues did not converge");
  return {pairs->values.cwiseInverse().array() - kShift, pairs->vectors};
}

// The closest point with 0 <= p <= 1 and sum p = total.
VectorXd project(const VectorXd& p, double total) {
  double low = p.minCoeff() - 1;
  double high = p.maxCoeff();
  const auto clamped = [&](double shift) { return (p.array() - shift).min(1.0).max(0.0).matrix().eval(); };
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (clamped(middle).sum() > total ? low : high) = middle;
  }
  return clamped(high);
}

// lambda_2 is concave but has kinks where eigenvalues meet; the soft minimum over the eigenvalues has none.
struct Evaluation {
  double lambda = 0;  // lambda_2 itself
  double value = 0;   // the soft minimum
  double bound = 0;   // no feasible p has a larger lambda_2
  VectorXd gradient;
};

class Problem {
 public:
  Problem(Rank n, const std::vector<Partners>& matchings, double total)
      : n_(n), matchings_(matchings), total_(total) {}

  Evaluation evaluate(const VectorXd& p, double temperature) const {
    const EigenPairs pairs = lowest_pairs(laplacian(n_, matchings_, p));
    Evaluation result;
    result.lambda = pairs.values[0];
    VectorXd share = (-(pairs.values.array() - result.lambda) / temperature).exp();
    result.value = result.lambda - temperature * std::log(share.sum());
    share /= share.sum();
    result.gradient = VectorXd::Zero(p.size());
    for (Index k = 0; k < share.size() && share[k] > 1e-14; ++k)
      for (std::size_t j = 0; j < matchings_.size(); ++j) {
        double energy = 0;
        for (Rank i = 0; i < n_; ++i) {
          const double gap =
              pairs.vectors(i, k) - pairs.vectors(matchings_[j][static_cast<std::size_t>(i)], k);
          energy += gap * gap;
        }
        result.gradient[static_cast<Index>(j)] += share[k] * energy / 2;
      }
    // lambda_2(q) <= sum_k share_k v_k' L(q) v_k = gradient . q for every q: fill the budget greedily.
    VectorXd sorted = result.gradient;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    double left = total_;
    for (Index j = 0; j < sorted.size() && left > 0; ++j, left -= 1)
      result.bound += sorted[j] * std::min(1.0, left);
    return result;
  }

  double total() const { return total_; }

 private:
  Rank n_;
  const std::vector<Partners>& matchings_;
  double total_;
};

// Accelerated projected gradient on the soft minimum, cooling down as the certified gap closes.
void maximize_connectivity(const Problem& problem, Index count, int evaluations, MatchaOptimum& best) {
  VectorXd p = VectorXd::Constant(count, problem.total() / static_cast<double>(count));
  VectorXd ahead = p;
  double momentum = 1;
  double step = 1;
  double bound = std::numeric_limits<double>::infinity();
  double temperature = 0.1;
  VectorXd best_p = p;
  best.connectivity = -1;
  const auto note = [&](const VectorXd& at, const Evaluation& evaluation) {
    bound = std::min(bound, evaluation.bound);
    if (evaluation.lambda > best.connectivity) {
      best.connectivity = evaluation.lambda;
      best_p = at;
    }
  };
  for (int used = 0; used < evaluations;) {
    const Evaluation here = problem.evaluate(ahead, temperature);
    note(ahead, here);
    ++used;
    if (bound - best.connectivity <= kTolerance * std::max(bound, 1e-12)) break;
    VectorXd next;
    for (;; ++used) {
      next = project(ahead + step * here.gradient, problem.total());
      const Evaluation there = problem.evaluate(next, temperature);
      note(next, there);
      const VectorXd move = next - ahead;
      const double promised = here.value + here.gradient.dot(move) - move.squaredNorm() / (2 * step);
      if (there.value >= promised - 1e-13 || step < 1e-9 || used > evaluations) break;
      step /= 2;
    }
    const double grown = (1 + std::sqrt(1 + 4 * momentum * momentum)) / 2;
    const bool backwards = here.gradient.dot(next - p) < 0;
    ahead = backwards ? next : project(next + (momentum - 1) / grown * (next - p), problem.total());
    momentum = backwards ? 1 : grown;
    p = next;
    step *= 1.3;
    // The soft minimum is within temperature * log n of lambda_2: the temperature need not exceed the gap.
    const double cooler = 0.2 * (bound - best.connectivity) / std::log(static_cast<double>(count) + 10.0);
    if (cooler < 0.5 * temperature) {
      temperature = cooler;
      momentum = 1;
    }
  }
  best.probabilities.assign(best_p.begin(), best_p.end());
  best.optimality_gap = std::max(0.0, bound - best.connectivity);
}

// ||I - 2aS + a^2 (S^2 + 2 sum p_j (1-p_j) L_j) - J||_2, all of it symmetric and positive semidefinite.
class SquaredNorm {
 public:
  SquaredNorm(const Sparse& s, const Sparse& variance) : s_(s), square_(Sparse(s * s) + 2.0 * variance) {}

  double operator()(double a) const {
    const Index n = s_.rows();
    if (n <= kDense) {
      MatrixXd matrix = MatrixXd::Identity(n, n) - 2 * a * MatrixXd(s_) + a * a * MatrixXd(square_);
      matrix.array() -= 1.0 / static_cast<double>(n);
      return symmetric_eigenvalues(matrix)[n - 1];
    }
    const auto apply = [&](const double* from, double* to) {
      const Eigen::Map<const VectorXd> x(from, n);
      Eigen::Map<VectorXd> y(to, n);
      y = x - 2 * a * (s_ * x) + a * a * (square_ * x);
      y.array() -= x.mean();
    };
    const auto pairs = iterated_eigenpairs(n, apply, EigenEnd::largest, iteration_of(n, 1, 1e-9));
    if (!pairs) throw Error("matcha: the mixing norm did not converge");
    return pairs->values[0];
  }

 private:
  Sparse s_;
  Sparse square_;
};

}  // namespace

MatchaOptimum optimize_matcha(Rank n, const std::vector<Partners>& matchings, double budget) {
  MatchaOptimum best;
  if (matchings.empty()) return best;
  const auto count = static_cast<Index>(matchings.size());
  const Problem problem(n, matchings, budget * static_cast<double>(count));
  maximize_connectivity(problem, count, n <= kDense ? 1500 : 40, best);

  const Eigen::Map<const VectorXd> p(best.probabilities.data(), count);
  const VectorXd variance = p.array() * (1 - p.array());
  const SquaredNorm norm(laplacian(n, matchings, p), laplacian(n, matchings, variance));
  // Convex in a, 1 at a = 0: golden section between 0 and where it is surely above 1 again.
  double low = 0;
  double high = 2 / std::max(best.connectivity, 1e-12);
  const double golden = (std::sqrt(5.0) - 1) / 2;
  double left = high - golden * (high - low);
  double right = low + golden * (high - low);
  double at_left = norm(left);
  double at_right = norm(right);
  while (high - low > 1e-10 * high) {
    if (at_left < at_right) {
      high = right;
      right = left;
      at_right = at_left;
      left = high - golden * (high - low);
      at_left = norm(left);
    } else {
      low = left;
      left = right;
      at_left = at_right;
      right = low + golden * (high - low);
      at_right = norm(right);
    }
  }
  best.edge_weight = (low + high) / 2;
  best.mean_square_rho = std::sqrt(std::max(0.0, norm(best.edge_weight)));
  return best;
}

}  // namespace starling::topology::family
