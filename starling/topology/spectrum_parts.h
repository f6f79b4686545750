#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <Eigen/Core>

#include "starling/topology/matrix.h"

// The parts of spectrum.cpp that need Eigen's solvers. These compile slowly, so each part has its own source
// file.

namespace starling::topology {

struct EigenPairs {
  Eigen::VectorXd values;
  Eigen::MatrixXd vectors;  // one per column
};

// Small matrices as a whole: dense_spectrum.cpp.

Eigen::MatrixXd dense(const RoundMatrix& round);

/// The 2-norm.
double largest_singular_value(const Eigen::MatrixXd& matrix);
/// The moduli of the eigenvalues of any square matrix, descending.
std::vector<double> eigenvalue_moduli(const Eigen::MatrixXd& matrix);
/// The eigenvalues of a symmetric matrix, ascending.
Eigen::VectorXd symmetric_eigenvalues(const Eigen::MatrixXd& matrix);
/// The eigenvalues of a symmetric matrix, ascending, with the eigenvectors as columns.
EigenPairs symmetric_eigenpairs(const Eigen::MatrixXd& matrix);

// By iteration: iterated_eigenpair.cpp.

enum class EigenEnd { least, largest };

/// How a Lanczos iteration starts and when it ends.
struct Iteration {
  Eigen::VectorXd start = {};
  Eigen::Index pairs = 1;
  Eigen::Index basis = 64;      // vectors kept between restarts; at most n
  Eigen::Index restarts = 300;  // the eigenvalues of a chain lie too close for any number
  double tolerance = 1e-13;
};

/// The extreme eigenvalues and eigenvectors of a symmetric map y = map(x) on n numbers, by a Lanczos
/// iteration. Empty if it did not converge.
std::optional<EigenPairs> iterated_eigenpairs(Eigen::Index n,
                                              const std::function<void(const double* x, double* y)>& map,
                                              EigenEnd end, const Iteration& iteration);

struct EigenPair {
  double value;
  Eigen::VectorXd vector;
};

/// The first extreme eigenpair, from a fixed start vector.
std::optional<EigenPair> iterated_eigenpair(Eigen::Index n,
                                            const std::function<void(const double* x, double* y)>& map,
                                            EigenEnd end);

}  // namespace starling::topology
