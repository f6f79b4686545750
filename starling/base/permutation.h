#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "starling/base/integer.h"
#include "starling/base/random.h"
#include "starling/base/types.h"

namespace starling {

/// A random permutation of 0 .. n-1, drawn by (seed, step), that maps and inverts single elements in O(1)
/// expected time and memory: a Feistel network on the cells of a rectangle barely larger than n, with cycle
/// walking.
class Permutation {
 public:
  Permutation(Rank n, std::uint64_t seed, Step step);

  /// Redraws the permutation for (seed, step) with the same number of elements. Host and device code.
  constexpr void redraw(std::uint64_t seed, Step step) {
    Random random(seed, static_cast<std::uint64_t>(step), stream::kPermutation);
    for (std::size_t r = 0; r < kRounds; r += 2) {
      const std::uint64_t word = random.next();
      keys_[r] = static_cast<std::uint32_t>(word);
      keys_[r + 1] = static_cast<std::uint32_t>(word >> 32);
    }
  }

  /// Host and device code.
  constexpr Rank operator()(Rank index) const {
    std::int64_t value = index;
    do {
      auto row = static_cast<Rank>(value / columns_);
      auto column = static_cast<Rank>(value % columns_);
      for (std::size_t r = 0; r < kRounds; r += 2) {
        row = add_mod(row, scramble(column, keys_[r], rows_), rows_);
        column = add_mod(column, scramble(row, keys_[r + 1], columns_), columns_);
      }
      value = static_cast<std::int64_t>(row) * columns_ + column;
    } while (value >= n_);
    return static_cast<Rank>(value);
  }
  Rank inverse(Rank image) const;

  /// images[i] = (*this)(i) for all i; much faster than n single calls. `scratch` is reused across calls.
  void table(std::span<Rank> images, std::vector<Rank>& scratch) const;

 private:
  static constexpr std::size_t kRounds = 6;

  static constexpr Rank scramble(Rank value, std::uint32_t key, Rank bound) {
    std::uint32_t h = (static_cast<std::uint32_t>(value) ^ key) * 0x9E3779B1u;
    h ^= h >> 15;
    h *= 0x85EBCA77u;
    h ^= h >> 13;
    return static_cast<Rank>((static_cast<std::uint64_t>(h) * static_cast<std::uint64_t>(bound)) >> 32);
  }

  Rank n_;
  Rank rows_;
  Rank columns_;
  std::array<std::uint32_t, kRounds> keys_{};
};

}  // namespace starling
