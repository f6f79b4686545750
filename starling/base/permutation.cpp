#include "starling/base/permutation.h"

#include <algorithm>
#include <cmath>

#include "starling/base/integer.h"
#include "starling/base/random.h"

namespace starling {
namespace {

// A tiny Feistel network is far from a random permutation, so small n walk inside a square of this side.
constexpr Rank kLeastSide = 16;

Rank scramble(Rank value, std::uint32_t key, Rank bound) {
  std::uint32_t h = (static_cast<std::uint32_t>(value) ^ key) * 0x9E3779B1u;
  h ^= h >> 15;
  h *= 0x85EBCA77u;
  h ^= h >> 13;
  return static_cast<Rank>((static_cast<std::uint64_t>(h) * static_cast<std::uint64_t>(bound)) >> 32);
}

}  // namespace

Permutation::Permutation(Rank n, std::uint64_t seed, Step step)
    : n_(n),
      rows_(std::max(kLeastSide, static_cast<Rank>(std::ceil(std::sqrt(n))))),
      columns_(std::max(kLeastSide, (n - 1) / rows_ + 1)) {
  Random random(seed, static_cast<std::uint64_t>(step), stream::kPermutation);
  for (std::size_t r = 0; r < kRounds; r += 2) {
    const std::uint64_t word = random.next();
    keys_[r] = static_cast<std::uint32_t>(word);
    keys_[r + 1] = static_cast<std::uint32_t>(word >> 32);
  }
}

Rank Permutation::operator()(Rank index) const {
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

Rank Permutation::inverse(Rank image) const {
  std::int64_t value = image;
  do {
    auto row = static_cast<Rank>(value / columns_);
    auto column = static_cast<Rank>(value % columns_);
    for (std::size_t r = kRounds; r > 0; r -= 2) {
      column = sub_mod(column, scramble(row, keys_[r - 1], columns_), columns_);
      row = sub_mod(row, scramble(column, keys_[r - 2], rows_), rows_);
    }
    value = static_cast<std::int64_t>(row) * columns_ + column;
  } while (value >= n_);
  return static_cast<Rank>(value);
}

void Permutation::table(std::span<Rank> images, std::vector<Rank>& scratch) const {
  // A side has few values, so every round function fits in a small table and a round is one look-up.
  const auto side = static_cast<std::size_t>(std::max(rows_, columns_));
  scratch.resize(kRounds * side);
  for (std::size_t r = 0; r < kRounds; ++r)
    for (std::size_t value = 0; value < side; ++value)
      scratch[r * side + value] = scramble(static_cast<Rank>(value), keys_[r], r % 2 == 0 ? rows_ : columns_);
  const Rank* round = scratch.data();
  const auto map = [&](Rank row, Rank column) {
    for (std::size_t r = 0; r < kRounds; r += 2) {
      row = add_mod(row, round[r * side + static_cast<std::size_t>(column)], rows_);
      column = add_mod(column, round[(r + 1) * side + static_cast<std::size_t>(row)], columns_);
    }
    return static_cast<std::int64_t>(row) * columns_ + column;
  };
  // Row by row: dividing every index would cost more than the rounds.
  Rank row = 0;
  for (std::size_t begin = 0; begin < images.size(); begin += static_cast<std::size_t>(columns_), ++row) {
    const auto width = static_cast<Rank>(std::min(images.size() - begin, static_cast<std::size_t>(columns_)));
    for (Rank column = 0; column < width; ++column) {
      std::int64_t value = map(row, column);
      while (value >= n_)
        value = map(static_cast<Rank>(value / columns_), static_cast<Rank>(value % columns_));
      images[begin + static_cast<std::size_t>(column)] = static_cast<Rank>(value);
    }
  }
}

}  // namespace starling
