#include <algorithm>
#include <cmath>

#include <Eigen/Eigenvalues>

#include "starling/topology/spectrum_parts.h"

namespace starling::topology {

Eigen::MatrixXd dense(const RoundMatrix& round) {
  Eigen::MatrixXd w = Eigen::MatrixXd::Zero(round.size(), round.size());
  for (const Entry& entry : round.entries()) w(entry.receiver, entry.sender) += entry.weight;
  return w;
}

// Not Eigen's SVD, which takes a minute to compile. The norm of the image is more precise than the square
// root of an eigenvalue.
double largest_singular_value(const Eigen::MatrixXd& matrix) {
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(matrix.transpose() * matrix);
  return (matrix * solver.eigenvectors().col(matrix.cols() - 1)).norm();
}

std::vector<double> eigenvalue_moduli(const Eigen::MatrixXd& matrix) {
  const auto values = Eigen::EigenSolver<Eigen::MatrixXd>(matrix, false).eigenvalues();
  std::vector<double> moduli;
  for (Eigen::Index i = 0; i < values.size(); ++i) moduli.push_back(std::abs(values[i]));
  std::sort(moduli.rbegin(), moduli.rend());
  return moduli;
}

Eigen::VectorXd symmetric_eigenvalues(const Eigen::MatrixXd& matrix) {
  return Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(matrix, Eigen::EigenvaluesOnly).eigenvalues();
}

EigenPairs symmetric_eigenpairs(const Eigen::MatrixXd& matrix) {
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(matrix);
  return {solver.eigenvalues(), solver.eigenvectors()};
}

}  // namespace starling::topology
