#include "topology/dense_algebra.h"

#include <Eigen/Eigenvalues>

namespace starling::topology::reference {

Matrix product(const Matrix& left, const Matrix& right) {
  return left * right;
}

Matrix gram(const Matrix& matrix) {
  return matrix.transpose() * matrix;
}

double spectral_norm(const Matrix& matrix) {
  // The eigenvalues of [0 M; M' 0] are the singular values and their negatives; those of M'M would lose half
  // of the digits.
  Matrix both = Matrix::Zero(matrix.rows() + matrix.cols(), matrix.rows() + matrix.cols());
  both.bottomLeftCorner(matrix.cols(), matrix.rows()) = matrix.transpose();
  both.topRightCorner(matrix.rows(), matrix.cols()) = matrix;
  return eigenvalues(both).maxCoeff();
}

Vector eigenvalues(const Matrix& symmetric) {
  return Eigen::SelfAdjointEigenSolver<Matrix>(symmetric, Eigen::EigenvaluesOnly).eigenvalues();
}

Vector last_eigenvector(const Matrix& symmetric) {
  return Eigen::SelfAdjointEigenSolver<Matrix>(symmetric).eigenvectors().rightCols<1>();
}

}  // namespace starling::topology::reference
