#include <algorithm>

#include "topology/dense_parts.h"

namespace starling::topology::reference {
namespace {

/// V_l of the specification: one non-zero digit of n.
struct Block {
  int digit;
  int power;
  int first;
  int size;
  int part_size;              // K^power
  std::vector<Matrix> whole;  // H_l
  std::vector<Matrix> part;   // G_l
  std::size_t used = 0;       // b_l
};

std::vector<Block> blocks_of(int n, int k) {
  std::vector<Block> blocks;
  int power = 0;
  int unit = 1;
  while (unit <= n / (k + 1)) {
    unit *= k + 1;
    ++power;
  }
  int first = 0;
  for (; power >= 0; --power, unit /= k + 1) {
    const int digit = (n - first) / unit;
    if (digit == 0) continue;
    const int size = digit * unit;
    blocks.push_back({digit, power, first, size, unit, hyper_hypercube_rounds(size, k),
                      hyper_hypercube_rounds(unit, k), 0});
    first += size;
  }
  return blocks;
}

void place(Matrix& round, int first, const Matrix& block) {
  round.block(first, first, block.rows(), block.cols()) = block;
}

using Pools = std::vector<std::vector<int>>;

/// Step (b): every node of a later block is paired with one node of each pool.
void meet_pools(Matrix& round, const Block& block, const Block& sharing, int tail, Pools& pools) {
  const double share = static_cast<double>(sharing.size) / tail;
  for (int i = block.first; i < block.first + block.size; ++i) {
    for (std::vector<int>& pool : pools) {
      const int j = pool.back();
      pool.pop_back();
      round(i, j) = round(j, i) = share / sharing.digit;
      round(j, j) = 1 - share / sharing.digit;
    }
    round(i, i) = 1 - share;
  }
}

/// Step (c): the nodes that are left in the pools average among themselves.
void average_rest(Matrix& round, const Pools& pools, int K) {
  std::vector<int> rest;
  for (const std::vector<int>& pool : pools) rest.insert(rest.end(), pool.begin(), pool.end());
  while (rest.size() > 1) {
    const auto end = rest.begin() + std::min<std::ptrdiff_t>(K, std::ssize(rest));
    const std::vector<int> together(rest.begin(), end);
    for (const int i : together) {
      for (const int j : together) round(i, j) = 1.0 / static_cast<double>(together.size());
    }
    rest.erase(rest.begin(), end);
  }
}

const Matrix& cyclic(const std::vector<Matrix>& rounds, std::size_t index) {
  return rounds[index % rounds.size()];
}

}  // namespace

bool is_smooth(int n, int largest) {
  for (int factor = 2; factor <= largest; ++factor) {
    while (n % factor == 0) n /= factor;
  }
  return n == 1;
}

Matrix kronecker(const Matrix& left, const Matrix& right) {
  Matrix product(left.rows() * right.rows(), left.cols() * right.cols());
  for (Eigen::Index i = 0; i < left.rows(); ++i) {
    for (Eigen::Index j = 0; j < left.cols(); ++j) {
      product.block(i * right.rows(), j * right.cols(), right.rows(), right.cols()) = left(i, j) * right;
    }
  }
  return product;
}

std::vector<Matrix> hyper_hypercube_rounds(int n, int k) {
  std::vector<int> factors;
  int rest = n;
  for (int factor = k + 1; factor >= 2; --factor) {
    for (; rest % factor == 0; rest /= factor) factors.push_back(factor);
  }
  std::sort(factors.begin(), factors.end());
  std::vector<Matrix> rounds;
  int stride = 1;
  for (const int factor : factors) {
    const auto without_digit = [&](int i) { return i - i / stride % factor * stride; };
    Matrix round = Matrix::Zero(n, n);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        if (without_digit(i) == without_digit(j)) round(i, j) = 1.0 / factor;
      }
    }
    rounds.push_back(round);
    stride *= factor;
  }
  if (rounds.empty()) rounds.push_back(Matrix::Identity(n, n));
  return rounds;
}

std::vector<Matrix> simple_base_rounds(int n, int k) {
  const int K = k + 1;
  if (is_smooth(n, K)) return hyper_hypercube_rounds(n, k);
  std::vector<Block> blocks = blocks_of(n, k);
  const int count = static_cast<int>(blocks.size());
  const int top = blocks.front().power;
  const int m1 = top + (blocks.front().digit > 1 ? 1 : 0);

  std::vector<Matrix> rounds;
  for (int m = 0; m <= m1 + top; ++m) {
    Matrix round = Matrix::Identity(n, n);
    const int t = m - m1;
    Pools pools;
    if (t >= 0 && t < count - 1) {
      const Block& sharing = blocks[static_cast<std::size_t>(t)];
      for (int q = 0; q < sharing.digit; ++q) {
        std::vector<int> pool;
        for (int i = 0; i < sharing.part_size; ++i) pool.push_back(sharing.first + q * sharing.part_size + i);
        pools.push_back(pool);
      }
    }
    for (int l = count - 1; l >= 0; --l) {
      Block& block = blocks[static_cast<std::size_t>(l)];
      if (m < m1) {
        place(round, block.first, cyclic(block.whole, static_cast<std::size_t>(m)));
      } else if (l > t) {
        const Block& sharing = blocks[static_cast<std::size_t>(t)];
        meet_pools(round, block, sharing, n - sharing.first, pools);
      } else if (l == t && l < count - 1) {
        average_rest(round, pools, K);
      } else if (block.size < K) {
        place(round, block.first, cyclic(block.whole, block.used++));
      } else {
        for (int q = 0; q < block.digit; ++q) {
          place(round, block.first + q * block.part_size, cyclic(block.part, block.used));
        }
        ++block.used;
      }
    }
    rounds.push_back(round);
  }
  return rounds;
}

std::vector<Matrix> base_rounds(int n, int k) {
  int q = n;
  for (int factor = 2; factor <= k + 1; ++factor) {
    while (q % factor == 0) q /= factor;
  }
  const int p = n / q;
  std::vector<Matrix> simple = simple_base_rounds(n, k);
  const std::vector<Matrix> blocks = simple_base_rounds(q, k);
  const std::vector<Matrix> across = hyper_hypercube_rounds(p, k);
  if (simple.size() < blocks.size() + across.size()) return simple;
  std::vector<Matrix> rounds;
  for (const Matrix& round : blocks) rounds.push_back(kronecker(Matrix::Identity(p, p), round));
  for (const Matrix& round : across) rounds.push_back(kronecker(round, Matrix::Identity(q, q)));
  return rounds;
}

}  // namespace starling::topology::reference
