#pragma once

#include <cmath>
#include <vector>

namespace starling {

/// Returns how many standard deviations the chi-square statistic of equally likely cells lies above its
/// expectation (Wilson-Hilferty approximation). A value far below 0 means that the counts are too even to be
/// random.
inline double chi_square_sigmas(const std::vector<int>& counts) {
  double total = 0;
  for (const int count : counts) total += count;
  const double expected = total / static_cast<double>(counts.size());
  double statistic = 0;
  for (const int count : counts) statistic += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - spread)) / std::sqrt(spread);
}

/// Seeds are fixed, so a test that passes once always passes; this bound only has to admit a correct
/// generator.
inline constexpr double kLikelySigmas = 4.5;

}  // namespace starling
