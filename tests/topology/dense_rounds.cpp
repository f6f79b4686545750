#include <algorithm>
#include <utility>

#include "topology/dense_parts.h"

namespace starling::topology::reference {
namespace {

Matrix identity(int n) {
  return Matrix::Identity(n, n);
}

int modulo(std::int64_t value, std::int64_t n) {
  return static_cast<int>((value % n + n) % n);
}

/// Replaces a period without rounds by one identity round.
std::vector<Matrix> at_least_one(std::vector<Matrix> rounds, int n) {
  if (rounds.empty()) rounds.push_back(identity(n));
  return rounds;
}

void pair(Matrix& round, int i, int j) {
  round(i, i) = round(j, j) = round(i, j) = round(j, i) = 0.5;
}

/// The digits of `value` in a base, most significant first; none for 0.
std::vector<int> digits_of(int value, int base) {
  std::vector<int> digits;
  for (; value > 0; value /= base) digits.insert(digits.begin(), value % base);
  return digits;
}

/// The k-peer CECA updates for the given senders; `m` is the window before the round, `d` its digit.
DenseRound ceca_round(int n, int k, int m, int d,
                      const std::function<std::pair<std::vector<int>, std::vector<int>>(int)>& senders) {
  const double m_next = (k + 1) * m + d;
  DenseRound round{Matrix::Zero(n, n), Matrix::Zero(n, n), Matrix::Zero(n, n), Matrix::Zero(n, n)};
  for (int i = 0; i < n; ++i) {
    const auto [heard_a, heard_b] = senders(i);
    round.a(i, i) += (m + 1) / (m_next + 1);
    round.b(i, i) += m / m_next;
    for (const int j : heard_a) {
      round.a(i, j) += (m + 1) / (m_next + 1);
      round.b_from_a(i, j) += (m + 1) / m_next;
    }
    for (const int j : heard_b) {
      round.a_from_b(i, j) += m / (m_next + 1);
      round.b(i, j) += m / m_next;
    }
  }
  return round;
}

DenseRound idle_two_block() {
  return {identity(1), Matrix::Zero(1, 1), Matrix(), Matrix()};
}

}  // namespace

std::vector<Matrix> one_peer_exponential_rounds(int n) {
  std::vector<Matrix> rounds;
  for (int hop = 1; hop < n; hop *= 2) {
    Matrix round = 0.5 * identity(n);
    for (int i = 0; i < n; ++i) round(i, (i + hop) % n) += 0.5;
    rounds.push_back(round);
  }
  return at_least_one(rounds, n);
}

std::vector<Matrix> k_peer_exponential_rounds(int n, int k) {
  std::vector<Matrix> rounds;
  for (std::int64_t power = 1; power < n; power *= k + 1) {
    Matrix round = Matrix::Zero(n, n);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j <= k; ++j) round(i, modulo(i + j * power, n)) += 1.0 / (k + 1);
    }
    rounds.push_back(round);
  }
  return at_least_one(rounds, n);
}

std::vector<Matrix> one_peer_hypercube_rounds(int n) {
  std::vector<Matrix> rounds;
  for (int bit = 1; bit < n; bit *= 2) {
    Matrix round = identity(n);
    for (int i = 0; i < n; ++i) pair(round, i, i ^ bit);
    rounds.push_back(round);
  }
  return at_least_one(rounds, n);
}

std::vector<Matrix> one_peer_ring_rounds(int n) {
  if (n == 1) return {identity(1)};
  Matrix even = identity(n);
  Matrix odd = identity(n);
  for (int i = 0; i < n; i += 2) {
    pair(even, i, i + 1);
    pair(odd, i, modulo(i - 1, n));
  }
  return {even, odd};
}

std::vector<Matrix> aer_rounds(int n, int local) {
  if (n == 1) return {identity(1)};
  const int machines = n / local;
  const auto average_inside = [&](Matrix& round, int machine) {
    round.block(machine * local, machine * local, local, local).setConstant(1.0 / local);
  };
  const auto average_both = [&](Matrix& round, int left, int right, double weight) {
    for (const auto& [own, other] : {std::pair(left, right), std::pair(right, left)}) {
      round.block(own * local, own * local, local, local).setConstant((1 - weight) / local);
      round.block(own * local, other * local, local, local).setConstant(weight / local);
    }
  };

  std::vector<Matrix> rounds;
  int counter = 0;
  for (const Matrix& base : base_rounds(machines, 1)) {
    Matrix stage[2] = {identity(n), identity(n)};
    for (int j = 0; j < machines; ++j) {
      int other = j;
      for (int candidate = 0; candidate < machines; ++candidate) {
        if (candidate != j && base(j, candidate) != 0) other = candidate;
      }
      if (other < j) continue;
      if (other == j) {
        average_inside(stage[0], j);
        continue;
      }
      const int inside = counter % 2;
      average_inside(stage[inside], j);
      average_inside(stage[inside], other);
      average_both(stage[1 - inside], j, other, base(j, other));
      ++counter;
    }
    rounds.push_back(stage[0]);
    rounds.push_back(stage[1]);
  }
  return rounds;
}

std::vector<Matrix> fold_unfold_rounds(int n) {
  int core = 1;
  while (2 * core <= n) core *= 2;
  std::vector<Matrix> rounds;
  Matrix fold = identity(n);
  Matrix unfold = identity(n);
  for (int i = 0; i < n - core; ++i) {
    fold(core + i, core + i) = 0;
    fold(i, core + i) = 1;
    unfold(i, i) = 0.5;
    unfold(core + i, i) = 0.5;
  }
  if (core < n) rounds.push_back(fold);
  for (int bit = 1; bit < core; bit *= 2) {
    Matrix round = identity(n);
    for (int i = 0; i < core; ++i) pair(round, i, i ^ bit);
    rounds.push_back(round);
  }
  if (core < n) rounds.push_back(unfold);
  return at_least_one(rounds, n);
}

std::vector<DenseRound> ceca_rounds(int n, int k) {
  std::vector<DenseRound> rounds;
  int m = 0;
  for (const int d : digits_of(n - 1, k + 1)) {
    rounds.push_back(ceca_round(n, k, m, d, [&](int i) {
      std::vector<int> heard_a;
      std::vector<int> heard_b;
      for (int j = 1; j <= d; ++j) heard_a.push_back(modulo(i - j * (m + 1), n));
      for (int j = 1; j <= k - d && m > 0; ++j) {
        heard_b.push_back(modulo(i - ((d + 1) * (m + 1) - 1 + (j - 1) * m), n));
      }
      return std::pair(heard_a, heard_b);
    }));
    m = (k + 1) * m + d;
  }
  if (rounds.empty()) rounds.push_back(idle_two_block());
  return rounds;
}

std::vector<DenseRound> ceca_1p_rounds(int n) {
  std::vector<DenseRound> rounds;
  int m = 0;
  for (const int d : digits_of(n - 1, 2)) {
    rounds.push_back(ceca_round(n, 1, m, d, [&](int i) {
      const int partner = modulo(i % 2 == 1 ? i + 2 * m + 1 : i - (2 * m + 1), n);
      std::vector<int> heard{partner};
      return d == 1 ? std::pair(heard, std::vector<int>()) : std::pair(std::vector<int>(), heard);
    }));
    m = 2 * m + d;
  }
  if (rounds.empty()) rounds.push_back(idle_two_block());
  return rounds;
}

Matrix inner_outer_round(int n, int local, bool exponential, Step step) {
  if (n == 1) return identity(1);
  const int machines = n / local;
  const auto floor_log2 = [](int value) {
    int log = 0;
    while (value >> (log + 1) > 0) ++log;
    return log;
  };
  const int outer = exponential ? 1 << (step % (floor_log2(machines - 1) + 1)) : 1;
  const int inner = exponential ? 1 << (step % (floor_log2(local - 2) + 1)) : 1;
  const int speaker = static_cast<int>(step % local);
  Matrix round = 0.5 * identity(n);
  for (int machine = 0; machine < machines; ++machine) {
    for (int q = 0; q < local; ++q) {
      const int sender = machine * local + q;
      int receiver = 0;
      if (q == speaker) {
        receiver = (machine + outer) % machines * local + q;
      } else {
        const int hop = inner >= modulo(speaker - q, local) ? inner + 1 : inner;
        receiver = machine * local + (q + hop) % local;
      }
      round(receiver, sender) += 0.5;
    }
  }
  return round;
}

Matrix one_peer_of_round(const Matrix& edges, Step step) {
  const int n = static_cast<int>(edges.rows());
  Matrix told = Matrix::Zero(n, n);
  for (int sender = 0; sender < n; ++sender) {
    std::vector<int> receivers;
    for (int distance = 1; distance < n; ++distance) {
      const int receiver = (sender + distance) % n;
      if (edges(receiver, sender) != 0) receivers.push_back(receiver);
    }
    if (receivers.empty()) continue;
    told(receivers[static_cast<std::size_t>(step) % receivers.size()], sender) = 1;
  }
  return weigh(told, "uniform");
}

}  // namespace starling::topology::reference
