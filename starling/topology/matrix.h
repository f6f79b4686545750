#pragma once

#include <vector>

#include "starling/topology/schedule.h"

namespace starling::topology {

/// One entry of a round's matrix: the weight that RECEIVER gives to SENDER, and which block travels.
struct Entry {
  Rank receiver = 0;
  Rank sender = 0;
  Lane lane = Lane::a;
  double weight = 0;
};

/// One round of a schedule for all ranks, in O(edges) memory: group means stay factored out, W = S G.
class RoundMatrix {
 public:
  RoundMatrix(const Schedule& schedule, Step step);

  Rank size() const { return n_; }

  /// y = W x, for `dim` values per rank (rank-major).
  void multiply(const double* x, double* y, int dim = 1) const;
  /// y = W^T x.
  void multiply_transposed(const double* x, double* y) const;
  /// (a, b) -> (a', b') for two-block schedules.
  void multiply_blocks(const double* a, const double* b, double* a_out, double* b_out, int dim = 1) const;

  /// Messages of one model's size that the round sends; a mean over g ranks counts as a ring all-reduce, 2 (g
  /// - 1).
  double messages() const;

  /// All non-zero entries and the whole diagonal, ordered by receiver and then sender, with groups expanded.
  /// For two-block schedules the weights into block a or, on request, into block b.
  std::vector<Entry> entries(Lane into = Lane::a) const;

 private:
  const double* average_groups(const double* x, std::vector<double>& scratch, int dim) const;

  struct Row {
    double self = 1;
    double self_b = 0;
    std::size_t end = 0;  // the end of this row's sources
  };

  Rank n_;
  std::vector<Row> rows_;
  std::vector<Source> sources_;
  std::vector<Group> groups_;           // distinct, disjoint
  std::vector<std::int32_t> group_of_;  // per rank, -1: none; empty if there are no groups
  mutable std::vector<double> scratch_;
  mutable std::vector<double> scratch_b_;
};

}  // namespace starling::topology

namespace starling {
using topology::RoundMatrix;
}  // namespace starling
