#include "starling/base/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <string>

#include "half_reference.h"
#include "starling/base/random.h"

namespace starling {
namespace {

const DType kAll[] = {DType::float64, DType::float32, DType::float16, DType::bfloat16, DType::int64,
                      DType::int32,   DType::int16,   DType::int8,    DType::uint8};

static_assert(dtype_of<float> == DType::float32 && dtype_of<const double> == DType::float64);
static_assert(dtype_of<long> == dtype_of<long long> && dtype_of<int> == DType::int32);
static_assert(dtype_of<signed char> == DType::int8 && dtype_of<unsigned char> == DType::uint8);
static_assert(!is_element<char> && !is_element<bool> && !is_element<std::uint32_t> &&
              !is_element<long double>);
static_assert(size_of(DType::bfloat16) == 2 && size_of(DType::int64) == 8 && size_of(DType::uint8) == 1);
static_assert(float(Half(1.5F)) == 1.5F && Half(65520.0F).bits == 0x7C00 && Half(65519.0F).bits == 0x7BFF);

TEST(DTypeTest, NamesParseBack) {
  for (const DType dtype : kAll) {
    EXPECT_EQ(parse_dtype(name(dtype)), dtype);
    EXPECT_EQ(dispatch(dtype, []<typename T>(std::type_identity<T>) { return dtype_of<T>; }), dtype);
    EXPECT_EQ(is_floating(dtype), name(dtype).find("float") != std::string::npos);
  }
  EXPECT_EQ(name(DType::bfloat16), "bfloat16");
}

TEST(DTypeTest, UnknownOnesAreNamedBesideTheValidOnes) {
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT([] { parse_dtype("float8"); },
              testing::ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("'float8'"), HasSubstr("bfloat16"))));
  EXPECT_THAT([] { (void)size_of(static_cast<DType>(77)); },
              testing::ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("dtype 77"), HasSubstr("uint8"))));
}

TEST(HalfTest, EveryPatternHasItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const float value = Half::from_bits(pattern);
    if ((bits & 0x7FFF) > 0x7C00) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_EQ(Half(value).bits, pattern | 0x200) << bits;  // quiet
    } else {
      ASSERT_EQ(static_cast<double>(value), half_reference::value<half_reference::kHalf>(pattern)) << bits;
      ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
      ASSERT_EQ(Half(value).bits, pattern) << bits;
    }
  }
}

TEST(BFloat16Test, EveryPatternHasItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const float value = BFloat16::from_bits(pattern);
    if ((bits & 0x7FFF) > 0x7F80) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_EQ(BFloat16(value).bits, pattern | 0x40) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), half_reference::value<half_reference::kBFloat16>(pattern))
          << bits;
      ASSERT_EQ(BFloat16(value).bits, pattern) << bits;
    }
  }
}

TEST(HalfTest, TiesGoToEven) {
  EXPECT_EQ(float(Half(2049.0F)), 2048.0F);
  EXPECT_EQ(float(Half(2051.0F)), 2052.0F);
  EXPECT_EQ(Half(std::ldexp(1.0F, -25)).bits, 0);  // half of the least subnormal
  EXPECT_EQ(Half(std::nextafter(std::ldexp(1.0F, -25), 1.0F)).bits, 1);
  EXPECT_EQ(Half(std::ldexp(3.0F, -25)).bits, 2);  // between 1 and 2
  EXPECT_EQ(Half(std::ldexp(2047.0F, -25)).bits,
            0x400);  // the largest subnormal and a half
  EXPECT_EQ(Half(65520.0F).bits, 0x7C00);
  EXPECT_EQ(Half(-std::numeric_limits<float>::infinity()).bits, 0xFC00);
  EXPECT_EQ(Half(-0.0F).bits, 0x8000);
}

TEST(BFloat16Test, TiesGoToEven) {
  EXPECT_EQ(float(BFloat16(257.0F)), 256.0F);
  EXPECT_EQ(float(BFloat16(259.0F)), 260.0F);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x00008000U)).bits, 0);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x00018000U)).bits, 2);
  EXPECT_TRUE(std::isnan(float(BFloat16(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_TRUE(std::isnan(float(BFloat16(std::bit_cast<float>(0xFFFFFFFFU)))));
}

// Around every boundary between two neighbors, and random patterns of every sign and exponent.
TEST(HalfTest, RoundsLikeTheReference) {
  Random random(11, 0, 0);
  const auto check = [](std::uint32_t bits) {
    ASSERT_EQ(Half(std::bit_cast<float>(bits)).bits, half_reference::round<half_reference::kHalf>(bits))
        << std::hex << bits;
    ASSERT_EQ(BFloat16(std::bit_cast<float>(bits)).bits,
              half_reference::round<half_reference::kBFloat16>(bits))
        << std::hex << bits;
  };
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower : {0U, 1U, 0xFFFU, 0x1000U, 0x1001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      check((upper << 16) | lower);
  for (std::uint32_t i = 0; i < 1'000'000; ++i) check(static_cast<std::uint32_t>(random.next()));
}

}  // namespace
}  // namespace starling
