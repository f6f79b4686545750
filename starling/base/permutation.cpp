#include "starling/base/permutation.h"

#include <algorithm>
#include <cmath>

namespace starling {
namespace {

// A tiny Feistel network is far from a random permutation, so a small n uses a square with this side.
constexpr Rank kLeastSide = 16;

}  // namespace

Permutation::Permutation(Rank n, std::uint64_t seed, Step step)
    : n_(n),
      rows_(std::max(kLeastSide, static_cast<Rank>(std::ceil(std::sqrt(n))))),
      columns_(std::max(kLeastSide, (n - 1) / rows_ + 1)) {
  redraw(seed, step);
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
  // Row by row, since dividing every index would cost more than the rounds do.
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
