#include "starling/kernel/select.h"

#include <algorithm>
#include <cmath>

#include "blocks.h"
#include "starling/kernel/dot.h"

namespace starling::kernel {
namespace {

class SelectTest : public EveryTarget {};
STARLING_ON_EVERY_TARGET(SelectTest);

std::uint32_t magnitude(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU;
}

// Any bit pattern may occur; NaN sorts above infinity.
TEST_P(SelectTest, TheCutIsWhereSortingHasIt) {
  for (const std::size_t count : {1U, 2U, 15U, 16U, 17U, 64U, 100U, 3001U})
    for (const bool few_values : {false, true}) {
      std::vector<float> values = odd_numbers<float>(count, count);
      if (few_values)
        for (float& value : values) value = std::isnan(value) ? value : std::round(value);
      std::vector<std::uint32_t> sorted;
      for (const float value : values) sorted.push_back(magnitude(value));
      std::sort(sorted.rbegin(), sorted.rend());
      for (std::size_t k = 1; k <= count; k += 1 + k / 3) {
        const Cut cut = cut_of_largest(values.data(), count, k);
        ASSERT_EQ(cut.magnitude, sorted[k - 1]) << k << " of " << count;
        const auto first_tie = std::find(sorted.begin(), sorted.end(), cut.magnitude) - sorted.begin();
        ASSERT_EQ(cut.ties, k - static_cast<std::size_t>(first_tie)) << k << " of " << count;

        Placed<std::int32_t> indices(k, k % 5);
        Placed<float> taken(k, k % 7);
        take_largest(values.data(), count, cut, reinterpret_cast<std::uint32_t*>(indices.data()),
                     taken.data());
        ASSERT_TRUE(indices.guards_stand() && taken.guards_stand());
        std::size_t ties = cut.ties, j = 0;
        for (std::size_t i = 0; i < count; ++i) {
          const bool tie = magnitude(values[i]) == cut.magnitude && ties > 0;
          if (tie) --ties;
          if (!tie && magnitude(values[i]) <= cut.magnitude) continue;
          ASSERT_EQ(indices.values()[j], static_cast<std::int32_t>(i));
          ASSERT_EQ(bits_of(taken.values()[j++]), bits_of(values[i]));
        }
        ASSERT_EQ(j, k);
      }
    }
}

TEST_P(SelectTest, TheDotProductHasOneOrder) {
  for (const std::size_t count : {0U, 1U, 63U, 64U, 65U, 1000U, 4096U}) {
    std::vector<float> a(count), b(count);
    Random random(count, 1, 1);
    for (std::size_t i = 0; i < count; ++i)
      a[i] = static_cast<float>(random.normal()), b[i] = static_cast<float>(random.normal());
    float sums[64] = {};
    for (std::size_t i = 0; i < count; ++i) {
      volatile float product = a[i] * b[i];
      sums[i % 64] += product;
    }
    double eight[8] = {};
    for (std::size_t k = 0; k < 64; ++k) eight[k % 8] += static_cast<double>(sums[k]);
    EXPECT_EQ(dot(a.data(), b.data(), count), ((eight[0] + eight[4]) + (eight[1] + eight[5])) +
                                                  ((eight[2] + eight[6]) + (eight[3] + eight[7])));
  }
}

}  // namespace
}  // namespace starling::kernel
