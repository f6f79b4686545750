#include "starling/kernel/square_sum.h"

#include <gtest/gtest.h>
#include <vector>

#include "blocks.h"
#include "starling/kernel/update.h"

namespace starling::kernel {
namespace {

/// Adds all `width` sums, zeros included, as defined in kernel/square_sum.h.
double folded(std::vector<double> sums) {
  for (std::size_t half = sums.size() / 2; half >= 4; half /= 2)
    for (std::size_t k = 0; k < half; ++k) sums[k] += sums[half + k];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <typename T>
double by_definition(const std::vector<T>& x) {
  const std::size_t strip = square_strip(x.size());
  std::vector<double> chunks(kMostSquareChunks);
  std::vector<std::vector<double>> sums(kMostSquareChunks, std::vector<double>(kSquareSums));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<double>(x[i]);
    const std::size_t in_order = i / strip;
    sums[in_order / kSquareStrips][in_order % kSquareStrips * kSquareColumns + i % strip % kSquareColumns] +=
        value * value;
  }
  for (std::size_t c = 0; c < chunks.size(); ++c) chunks[c] = folded(sums[c]);
  return folded(chunks);
}

class SquareSumTest : public EveryTarget {};
STARLING_ON_EVERY_TARGET(SquareSumTest);

template <typename T>
void check(std::size_t count) {
  Random random(count, 1, 1);
  std::vector<T> x(count);
  for (T& value : x) value = static_cast<T>(random.uniform() * 4 - 2);
  EXPECT_EQ(sum_of_squares(dtype_of<T>, x.data(), count), by_definition(x)) << count;
}

TEST_P(SquareSumTest, AddsInItsOrder) {
  for (const std::size_t count : {0U, 1U, 3U, 8U, 31U, 33U, 511U, 513U, 1003U, 16'384U, 16'387U, 100'003U}) {
    check<float>(count);
    check<double>(count);
  }
}

TEST(SquareStripTest, ThereAreNoMoreChunksThanAllowed) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 24, (std::size_t{1} << 24) + 1,
                                  std::size_t{1'234'567'891}, std::size_t{1} << 40}) {
    const std::size_t chunk = kSquareStrips * square_strip(count);
    EXPECT_EQ(square_strip(count) % kSquareColumns, 0U);
    EXPECT_LE((count + chunk - 1) / chunk, kMostSquareChunks);
  }
}

}  // namespace
}  // namespace starling::kernel
