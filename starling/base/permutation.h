#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "starling/base/types.h"

namespace starling {

/// A random permutation of 0 .. n-1, drawn by (seed, step), that maps and inverts single elements in O(1)
/// expected time and memory: a Feistel network on the cells of a rectangle barely larger than n, with cycle
/// walking.
class Permutation {
 public:
  Permutation(Rank n, std::uint64_t seed, Step step);

  Rank operator()(Rank index) const;
  Rank inverse(Rank image) const;

  /// images[i] = (*this)(i) for all i; much faster than n single calls. `scratch` is reused between calls.
  void table(std::span<Rank> images, std::vector<Rank>& scratch) const;

 private:
  static constexpr std::size_t kRounds = 6;

  Rank n_;
  Rank rows_;
  Rank columns_;
  std::array<std::uint32_t, kRounds> keys_;
};

}  // namespace starling
