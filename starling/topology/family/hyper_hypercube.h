#pragma once

#include <vector>

#include "starling/topology/exchange.h"

namespace starling::topology::family {

/// HHC(n, k): n = product of factors <= k+1; in round r the nodes that differ only in digit r average.
class HyperHypercube {
 public:
  /// Whether n has no prime factor above k+1.
  static bool possible(std::int64_t n, std::int64_t k);

  /// Requires possible(n, k). n = 1 gives one identity round.
  HyperHypercube(std::int64_t n, std::int64_t k);

  int length() const { return static_cast<int>(factors_.size()); }

  /// The exchange of node `index` in 0 .. n-1 in `round`; node v is rank origin + spacing * v.
  void fill(int round, std::int64_t index, std::int64_t origin, std::int64_t spacing, Exchange& out) const;

  /// For k = 1: the number of the round's pairs whose lower node is below `index`.
  std::int64_t pairs_before(int round, std::int64_t index) const;

 private:
  std::vector<std::int64_t> factors_;  // ascending
  std::vector<std::int64_t> strides_;
};

}  // namespace starling::topology::family
