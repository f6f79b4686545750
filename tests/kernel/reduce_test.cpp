#include "starling/kernel/reduce.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>

#include "blocks.h"

namespace starling::kernel {
namespace {

const DType kAll[] = {DType::float64, DType::float32, DType::float16, DType::bfloat16, DType::int64,
                      DType::int32,   DType::int16,   DType::int8,    DType::uint8};
const Reduction kReductions[] = {Reduction::sum, Reduction::min, Reduction::max};

template <typename T>
T reference(Reduction reduction, T left, T right) {
  if constexpr (is_floating_element<T>) {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const Wide a = left, b = right;
    if (reduction == Reduction::sum) return static_cast<T>(a + b);
    if (a != a) return left;
    if (b != b) return right;
    if (a == b) return std::signbit(a) == (reduction == Reduction::min) ? left : right;
    return (a < b) == (reduction == Reduction::min) ? left : right;
  } else {
    if (reduction == Reduction::sum)
      return static_cast<T>(static_cast<std::uint64_t>(left) + static_cast<std::uint64_t>(right));
    return reduction == Reduction::min ? std::min(left, right) : std::max(left, right);
  }
}

class ReduceTest : public EveryTarget {};
STARLING_ON_EVERY_TARGET(ReduceTest);

TEST_P(ReduceTest, EveryTypeReductionLengthAndPlace) {
  for (const DType dtype : kAll)
    for (const Reduction reduction : kReductions)
      dispatch(dtype, [&]<typename T>(std::type_identity<T>) {
        std::vector<std::size_t> counts{130, 1000, 4097};
        for (std::size_t count = 0; count <= 70; ++count) counts.push_back(count);
        for (const std::size_t count : counts) {
          std::vector<T> left = odd_numbers<T>(count, 1);
          std::vector<T> right = odd_numbers<T>(count, 2);
          // Makes some elements equal
          for (std::size_t i = 0; i < count; i += 5) right[i] = left[(i * 7) % count];
          std::vector<T> expected(count);
          for (std::size_t i = 0; i < count; ++i) expected[i] = reference(reduction, left[i], right[i]);
          Placed<T> accumulator(left, count % 64);
          Placed<T> in(right, count % 13);
          reduce(reduction, dtype, accumulator.data(), in.data(), count);
          ASSERT_TRUE(same_blocks(accumulator.values(), expected)) << name(reduction);
          ASSERT_TRUE(accumulator.guards_stand());
          ASSERT_TRUE(same_blocks(in.values(), right));
        }
      });
}

TEST_P(ReduceTest, AllPartsOfABlock) {
  for (const DType dtype : kAll)
    dispatch(dtype, [&]<typename T>(std::type_identity<T>) {
      const std::vector<T> left = odd_numbers<T>(100, 3);
      const std::vector<T> right = odd_numbers<T>(100, 4);
      std::vector<T> expected(100);
      for (std::size_t i = 0; i < 100; ++i) expected[i] = reference(Reduction::max, left[i], right[i]);
      for (std::size_t offset = 0; offset < 64; ++offset) {
        Placed<T> accumulator(left, offset);
        Placed<T> in(right, 63 - offset);
        reduce(Reduction::max, dtype, accumulator.data(), in.data(), 100);
        ASSERT_TRUE(same_blocks(accumulator.values(), expected)) << offset;
      }
    });
}

TEST_P(ReduceTest, NaNOnEitherSideAndSignedZeros) {
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16})
    dispatch(dtype, [&]<typename T>(std::type_identity<T>) {
      if constexpr (is_floating_element<T>) {
        const T nan(std::numeric_limits<float>::quiet_NaN()), one(1.0F), zero(0.0F), minus(-0.0F);
        for (const std::size_t repeat : {1U, 20U}) {  // in the remainder and in vectors
          std::vector<T> left, right;
          for (std::size_t i = 0; i < repeat; ++i) {
            for (const T value : {nan, one, zero, minus}) left.push_back(value);
            for (const T value : {one, nan, minus, zero}) right.push_back(value);
          }
          std::vector<T> least(left), most(left);
          reduce(Reduction::min, dtype, least.data(), right.data(), left.size());
          reduce(Reduction::max, dtype, most.data(), right.data(), left.size());
          for (std::size_t i = 0; i < left.size(); i += 4) {
            EXPECT_TRUE(std::isnan(double(least[i])) && std::isnan(double(least[i + 1])));
            EXPECT_TRUE(std::isnan(double(most[i])) && std::isnan(double(most[i + 1])));
            EXPECT_TRUE(std::signbit(double(least[i + 2])) && std::signbit(double(least[i + 3])));
            EXPECT_TRUE(!std::signbit(double(most[i + 2])) && !std::signbit(double(most[i + 3])));
          }
        }
      }
    });
}

TEST_P(ReduceTest, IntegersWrapAndBlocksMayBeTheirOwnInput) {
  std::vector<std::int8_t> small(100, 100);
  reduce(Reduction::sum, DType::int8, small.data(), small.data(), small.size());
  EXPECT_THAT(small, testing::Each(-56));
  std::vector<std::int64_t> large(33, std::numeric_limits<std::int64_t>::max());
  reduce(Reduction::sum, DType::int64, large.data(), large.data(), large.size());
  EXPECT_THAT(large, testing::Each(-2));
}

TEST_P(ReduceTest, ScaleRoundsLikeAProduct) {
  for (const std::size_t count : {0U, 1U, 70U, 999U}) {
    std::vector<float> values = odd_numbers<float>(count, 8);
    std::vector<BFloat16> rough = odd_numbers<BFloat16>(count, 9);
    const std::vector<float> before = values;
    const std::vector<BFloat16> rough_before = rough;
    scale(DType::float32, values.data(), 1.0 / 3, count);
    scale(DType::bfloat16, rough.data(), 1.0 / 3, count);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(same(values[i], static_cast<float>(1.0 / 3) * before[i]));
      ASSERT_TRUE(same(rough[i], BFloat16(static_cast<float>(1.0 / 3) * rough_before[i])));
    }
  }
}

TEST(ReduceErrorTest, SaysWhatIsValid) {
  std::int16_t value = 3;
  EXPECT_THAT([&] { scale(DType::int16, &value, 0.5, 1); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("int16")));
  EXPECT_EQ(value, 3);
  EXPECT_THAT([&] { reduce(static_cast<Reduction>(9), DType::int16, &value, &value, 1); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("sum, min, max")));
  EXPECT_THROW(reduce(Reduction::sum, static_cast<DType>(50), &value, &value, 1), InvalidArgument);
  reduce(Reduction::sum, DType::float32, nullptr, nullptr, 0);
}

}  // namespace
}  // namespace starling::kernel
