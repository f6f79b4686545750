#pragma once

#include <functional>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "topology/dense_algebra.h"

/// The deterministic topologies once more, as dense matrices written straight from the specification. Shares
/// nothing with the library but the parser of the grammar, so that agreement means something.
namespace starling::topology::reference {

/// One round; W(i, j) is the weight that receiver i gives to sender j.
struct DenseRound {
  Matrix a;  // block a into block a
  // The rest only for CECA; b_from_a and b are empty, or have a row of zeros, where the value of b is free.
  Matrix a_from_b;
  Matrix b_from_a;
  Matrix b;

  bool two_block() const { return a_from_b.size() > 0; }
};

using DenseSchedule = std::function<DenseRound(Step)>;

/// The reference for `text`, such as "base(k=2)"; assumes that the family allows n.
DenseSchedule dense_schedule(const std::string& text, int n);

/// The rule `weights` on a graph; edges(i, j) is 1 where i hears j, 0 elsewhere and on the diagonal.
Matrix weigh(const Matrix& edges, const std::string& weights);

/// The sequences of the specification, also for tests of their lengths.
std::vector<Matrix> hyper_hypercube_rounds(int n, int k);
std::vector<Matrix> simple_base_rounds(int n, int k);
std::vector<Matrix> base_rounds(int n, int k);

/// All primes of n are at most `largest`.
bool is_smooth(int n, int largest);

Matrix kronecker(const Matrix& left, const Matrix& right);

}  // namespace starling::topology::reference
