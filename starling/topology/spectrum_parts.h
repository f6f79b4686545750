#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <Eigen/Core>

#include "starling/topology/matrix.h"

// What spectra are computed from. Eigen's solvers compile slowly, so that each part has a source of its own.

namespace starling::topology {

struct EigenPairs {
  Eigen::VectorXd values;
  Eigen::MatrixXd vectors;  // one per column
};

// Of small matrices as a whole: dense_spectrum.cpp.

Eigen::MatrixXd dense(const RoundMatrix& round);

/// The 2-norm.
double largest_singular_value(const Eigen::MatrixXd& matrix);
/// Of any square matrix, falling.
std::vector<double> eigenvalue_moduli(const Eigen::MatrixXd& matrix);
/// Of a symmetric one, rising.
Eigen::VectorXd symmetric_eigenvalues(const Eigen::MatrixXd& matrix);
/// Likewise, with the vectors as columns.
EigenPairs symmetric_eigenpairs(const Eigen::MatrixXd& matrix);

// By iteration: iterated_eigenpair.cpp.

enum class EigenEnd { least, largest };

/// How a Lanczos iteration starts and when it ends.
struct Iteration {
  Eigen::VectorXd start = {};
  Eigen::Index pairs = 1;
  Eigen::Index basis = 64;      // vectors kept between restarts; at most n
  Eigen::Index restarts = 300;  // a chain's eigenvalues lie too close for any number
  double tolerance = 1e-13;
};

/// The extreme eigenvalues, and their vectors, of a symmetric map of n numbers that is given as y = map(x),
/// by a Lanczos iteration. Nothing when it did not converge.
std::optional<EigenPairs> iterated_eigenpairs(Eigen::Index n,
                                              const std::function<void(const double* x, double* y)>& map,
                                              EigenEnd end, const Iteration& iteration);

struct EigenPair {
  double value;
  Eigen::VectorXd vector;
};

/// The first of them, from a fixed start.
std::optional<EigenPair> iterated_eigenpair(Eigen::Index n,
                                            const std::function<void(const double* x, double* y)>& map,
                                            EigenEnd end);

}  // namespace starling::topology
