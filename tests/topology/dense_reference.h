#pragma once

#include <functional>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "topology/dense_algebra.h"

/// Reference implementation of the deterministic topologies: dense matrices written from the specification.
/// It shares only the grammar's parser with the library.
namespace starling::topology::reference {

/// One round; W(i, j) is the weight that receiver i gives to sender j.
struct DenseRound {
  Matrix a;  // block a into block a
  // The rest is for CECA only; b_from_a and b are empty, or have a row of zeros, where b may have any value.
  Matrix a_from_b;
  Matrix b_from_a;
  Matrix b;

  bool two_block() const { return a_from_b.size() > 0; }
};

using DenseSchedule = std::function<DenseRound(Step)>;

/// Returns the reference for `text`, such as "base(k=2)"; n must be valid for the family.
DenseSchedule dense_schedule(const std::string& text, int n);

/// Applies the weight rule `weights` to a graph; edges(i, j) is 1 if i receives from j, and 0 on the
/// diagonal.
Matrix weigh(const Matrix& edges, const std::string& weights);

/// The specification's sequences, also for tests of their lengths.
std::vector<Matrix> hyper_hypercube_rounds(int n, int k);
std::vector<Matrix> simple_base_rounds(int n, int k);
std::vector<Matrix> base_rounds(int n, int k);

/// Whether all prime factors of n are at most `largest`.
bool is_smooth(int n, int largest);

Matrix kronecker(const Matrix& left, const Matrix& right);

}  // namespace starling::topology::reference
