#pragma once

#include <optional>
#include <vector>

#include "starling/topology/family/hyper_hypercube.h"

namespace starling::topology::family {

/// SIMPLE(n, k) of the Base-(k+1) paper: exact for any n with at most k neighbors. Stores nothing of size n:
/// a node's exchange follows from its position among the blocks of n's digits.
class SimpleBase {
 public:
  SimpleBase(std::int64_t n, std::int64_t k);

  int length() const;
  void fill(int round, std::int64_t index, std::int64_t origin, Exchange& out) const;
  /// For k = 1: the number of the round's pairs whose lower node is below `index`.
  std::int64_t pairs_before(int round, std::int64_t index) const;

 private:
  struct Part {            // one non-zero digit a K^p of n in base K = k+1
    std::int64_t start;    // of the contiguous block
    std::int64_t digit;    // sub-blocks
    std::int64_t piece;    // size of a sub-block, K^p
    std::int64_t tail;     // size of this and all later blocks
    HyperHypercube whole;  // within the block
    HyperHypercube each;   // on a sub-block
    std::int64_t size() const { return digit * piece; }
  };

  std::int64_t base_;
  std::optional<HyperHypercube> smooth_;  // if n has no prime factor above K, the whole schedule
  std::vector<Part> parts_;
  int inside_rounds_ = 0;  // m1
  int length_ = 0;
};

/// BASE(n, k): SIMPLE on blocks of the rough part of n, then the hyper-hypercube across the blocks, if that
/// is shorter.
class BaseRounds {
 public:
  BaseRounds(std::int64_t n, std::int64_t k);

  int length() const { return simple_.length() + (across_ ? across_->length() : 0); }
  void fill(int round, std::int64_t index, Exchange& out) const;
  /// For k = 1: the number of the round's pairs whose lower node is below `index`.
  std::int64_t pairs_before(int round, std::int64_t index) const;

 private:
  std::int64_t block_;
  SimpleBase simple_;
  std::optional<HyperHypercube> across_;
};

}  // namespace starling::topology::family
