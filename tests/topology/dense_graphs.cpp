#include <algorithm>
#include <cstdlib>
#include <deque>
#include <stdexcept>

#include "topology/dense_parts.h"

namespace starling::topology::reference {
namespace {

// Sets instead of adds, which merges parallel edges.
void hear(Matrix& edges, int receiver, int sender) {
  if (receiver != sender) edges(receiver, sender) = 1;
}

void connect(Matrix& edges, int left, int right) {
  hear(edges, left, right);
  hear(edges, right, left);
}

bool is_power(int value, int base) {
  while (value % base == 0) value /= base;
  return value == 1;
}

}  // namespace

Matrix ring_edges(int n) {
  Matrix edges = Matrix::Zero(n, n);
  for (int i = 0; i < n; ++i) connect(edges, i, (i + 1) % n);
  return edges;
}

Matrix one_way_ring_edges(int n) {
  Matrix edges = Matrix::Zero(n, n);
  for (int i = 0; i < n; ++i) hear(edges, i, (i + 1) % n);
  return edges;
}

Matrix chain_edges(int n) {
  Matrix edges = Matrix::Zero(n, n);
  for (int i = 0; i + 1 < n; ++i) connect(edges, i, i + 1);
  return edges;
}

Matrix star_edges(int n, int center) {
  Matrix edges = Matrix::Zero(n, n);
  for (int i = 0; i < n; ++i) connect(edges, i, center);
  return edges;
}

Matrix grid_edges(int n, int rows, bool wrap) {
  if (rows == 0) {
    for (int candidate = 1; candidate * candidate <= n; ++candidate) {
      if (n % candidate == 0) rows = candidate;
    }
  }
  const int columns = n / rows;
  Matrix edges = Matrix::Zero(n, n);
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      const int here = row * columns + column;
      if (wrap || row + 1 < rows) connect(edges, here, (row + 1) % rows * columns + column);
      if (wrap || column + 1 < columns) connect(edges, here, row * columns + (column + 1) % columns);
    }
  }
  return edges;
}

Matrix hypercube_edges(int n) {
  Matrix edges = Matrix::Zero(n, n);
  for (int bit = 1; bit < n; bit *= 2) {
    for (int i = 0; i < n; ++i) hear(edges, i, i ^ bit);
  }
  return edges;
}

Matrix complete_edges(int n) {
  return Matrix::Ones(n, n) - Matrix::Identity(n, n);
}

Matrix exponential_edges(int n, int base) {
  Matrix edges = Matrix::Zero(n, n);
  for (int offset = 1; offset < n; offset *= base) {
    for (int i = 0; i < n; ++i) hear(edges, i, (i + offset) % n);
  }
  return edges;
}

Matrix symmetric_exponential_edges(int n, int base) {
  Matrix edges = Matrix::Zero(n, n);
  for (int offset = 1; offset < n; ++offset) {
    if (!is_power(std::min(offset, n - offset), base)) continue;
    for (int i = 0; i < n; ++i) hear(edges, i, (i + offset) % n);
  }
  return edges;
}

Matrix binary_tree_edges(int n, bool mirror) {
  Matrix edges = Matrix::Zero(n, n);
  const auto place = [&](int node) { return mirror ? n - 1 - node : node; };
  for (int node = 1; node < n; ++node) connect(edges, place(node), place(node / 2));
  return edges;
}

Matrix k_tree_edges(int n, int k) {
  Matrix edges = Matrix::Zero(n, n);
  int next = 1;
  for (int node = 0; node < n; ++node) {
    for (int child = 0; child < (node == 0 ? k : k - 1) && next < n; ++child) connect(edges, node, next++);
  }
  return edges;
}

Matrix bfs_tree_edges(const Matrix& graph, int root) {
  const int n = static_cast<int>(graph.rows());
  Matrix edges = Matrix::Zero(n, n);
  std::vector<bool> seen(static_cast<std::size_t>(n), false);
  std::deque<int> queue{root};
  seen[static_cast<std::size_t>(root)] = true;
  while (!queue.empty()) {
    const int node = queue.front();
    queue.pop_front();
    for (int other = 0; other < n; ++other) {
      if (graph(node, other) + graph(other, node) == 0 || seen[static_cast<std::size_t>(other)]) continue;
      seen[static_cast<std::size_t>(other)] = true;
      connect(edges, node, other);
      queue.push_back(other);
    }
  }
  return edges;
}

Matrix weigh(const Matrix& edges, const std::string& weights) {
  const Eigen::Index n = edges.rows();
  const Matrix with_self = edges + Matrix::Identity(n, n);
  if (weights == "uniform") {
    const Eigen::VectorXd heard = with_self.rowwise().sum();
    return heard.cwiseInverse().asDiagonal() * with_self;
  }
  if (weights == "push") {
    const Eigen::VectorXd told = with_self.colwise().sum();
    return with_self * told.cwiseInverse().asDiagonal();
  }
  const Eigen::VectorXd degree = edges.rowwise().sum();
  if (weights == "laplacian") {
    if (n == 1) return Matrix::Identity(1, 1);
    const Matrix laplacian = Matrix(degree.asDiagonal()) - edges;
    const Vector lambda = eigenvalues(laplacian);
    return Matrix::Identity(n, n) - 2 / (lambda(1) + lambda(n - 1)) * laplacian;
  }
  if (weights != "metropolis") throw std::invalid_argument("no such weights: " + weights);
  Matrix result = Matrix::Zero(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j < n; ++j) {
      if (edges(i, j) > 0) result(i, j) = 1 / (1 + std::max(degree(i), degree(j)));
    }
    result(i, i) = 1 - result.row(i).sum();
  }
  return result;
}

}  // namespace starling::topology::reference
