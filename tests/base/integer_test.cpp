#include "starling/base/integer.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>

namespace starling {
namespace {

constexpr Rank kMost = std::numeric_limits<Rank>::max();

// int(log(243) / log(3)) is 4: the reason why there are no floating-point logarithms here.
TEST(IntegerTest, LogarithmsAreRightAtExactPowers) {
  EXPECT_EQ(ceil_log(3, 243), 5);
  EXPECT_EQ(ceil_log(3, 244), 6);
  EXPECT_EQ(ceil_log(10, 1000), 3);
  EXPECT_EQ(ceil_log(5, 125), 3);
  EXPECT_EQ(ceil_log(7, kMost), 12);
  EXPECT_EQ(ceil_log(65537, kMost), 2);
  for (std::int64_t base = 2; base <= 20; ++base)
    for (int exponent = 0; power(base, exponent) <= kMost; ++exponent) {
      const std::int64_t n = power(base, exponent);
      EXPECT_EQ(ceil_log(base, n), exponent) << base;
      EXPECT_EQ(ceil_log(base, n + 1), exponent + 1) << base;
      EXPECT_TRUE(n <= base || ceil_log(base, n - 1) == exponent) << base;
    }
}

TEST(IntegerTest, LeastExponentThatReachesN) {
  for (std::int64_t base = 2; base <= 12; ++base)
    for (std::int64_t n = 2; n <= 5000; ++n) {
      const int r = ceil_log(base, n);
      ASSERT_GE(power(base, r), n);
      ASSERT_LT(power(base, r - 1), n);
    }
}

TEST(IntegerTest, BinaryLogarithms) {
  EXPECT_EQ(ceil_log2(1), 0);
  EXPECT_EQ(floor_log2(1), 0);
  EXPECT_EQ(ceil_log2(kMost), 31);
  EXPECT_EQ(floor_log2(kMost), 30);
  for (std::int64_t n = 1; n <= 5000; ++n) {
    ASSERT_EQ(ceil_log2(n), ceil_log(2, n)) << n;
    ASSERT_LE(power(2, floor_log2(n)), n);
    ASSERT_GT(power(2, floor_log2(n) + 1), n);
    ASSERT_EQ(is_power_of_two(n), ceil_log2(n) == floor_log2(n)) << n;
  }
}

TEST(IntegerTest, WrapTakesNegativesAndLargeNumbers) {
  EXPECT_EQ(wrap(-1, 5), 4);
  EXPECT_EQ(wrap(-5, 5), 0);
  EXPECT_EQ(wrap(-6, 5), 4);
  EXPECT_EQ(wrap(5, 5), 0);
  EXPECT_EQ(wrap(-7, 1), 0);
  EXPECT_EQ(wrap(std::numeric_limits<std::int64_t>::min(), 10), 2);  // -9223372036854775808
  EXPECT_EQ(wrap(std::numeric_limits<std::int64_t>::max(), 10), 7);
  EXPECT_EQ(wrap(-1, kMost), kMost - 1);
}

TEST(IntegerTest, SumsModuloDoNotOverflow) {
  EXPECT_EQ(add_mod(kMost - 1, kMost - 1, kMost), kMost - 2);
  EXPECT_EQ(add_mod(kMost - 1, 1, kMost), 0);
  EXPECT_EQ(add_mod(0, kMost - 1, kMost), kMost - 1);
  EXPECT_EQ(sub_mod(0, kMost - 1, kMost), 1);
  EXPECT_EQ(sub_mod(kMost - 2, kMost - 1, kMost), kMost - 1);
  for (const Rank n : {1, 2, 3, 7, 64, 101})
    for (Rank a = 0; a < n; ++a)
      for (Rank b = 0; b < n; ++b) {
        ASSERT_EQ(add_mod(a, b, n), (a + b) % n);
        ASSERT_EQ(sub_mod(a, b, n), (a + n - b) % n);
      }
}

}  // namespace
}  // namespace starling
