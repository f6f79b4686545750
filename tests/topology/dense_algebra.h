#pragma once

#include <Eigen/Core>

/// Products, norms and eigenvalues of dense matrices as plain functions. Eigen's templates behind them are
/// slow to compile, so only dense_algebra.cpp uses them; other tests include Eigen/Core only.
namespace starling::topology::reference {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

Matrix product(const Matrix& left, const Matrix& right);

/// The transpose of `matrix` times `matrix`.
Matrix gram(const Matrix& matrix);

/// The largest singular value.
double spectral_norm(const Matrix& matrix);

/// The eigenvalues in ascending order.
Vector eigenvalues(const Matrix& symmetric);

/// The eigenvector of the largest eigenvalue.
Vector last_eigenvector(const Matrix& symmetric);

}  // namespace starling::topology::reference
