#pragma once

#include <vector>

#include <Eigen/Core>

#include "starling/topology/matrix.h"

// What is computed of small matrices as a whole.

namespace starling::topology {

Eigen::MatrixXd dense(const RoundMatrix& round);

/// The 2-norm.
double largest_singular_value(const Eigen::MatrixXd& matrix);
/// Of any square matrix, falling.
std::vector<double> eigenvalue_moduli(const Eigen::MatrixXd& matrix);
/// Of a symmetric one, rising.
Eigen::VectorXd symmetric_eigenvalues(const Eigen::MatrixXd& matrix);

}  // namespace starling::topology
