#include "starling/kernel/convert.h"

#include <cmath>
#include <gmock/gmock.h>
#include <numeric>

#include "base/half_reference.h"
#include "blocks.h"

namespace starling::kernel {
namespace {

class ConvertTest : public EveryTarget {};
STARLING_ON_EVERY_TARGET(ConvertTest);

// Compares every pattern, NaN included, with base/dtype.h (which dtype_test checks), both through vectors and
// through the rest of a block.
TEST_P(ConvertTest, AllPatternsOf16BitsWiden) {
  std::vector<std::uint16_t> patterns(0x10000);
  std::iota(patterns.begin(), patterns.end(), std::uint16_t{0});
  std::vector<float> half(patterns.size()), bfloat(patterns.size());
  convert(DType::float16, patterns.data(), DType::float32, half.data(), patterns.size());
  convert(DType::bfloat16, patterns.data(), DType::float32, bfloat.data(), patterns.size());
  for (const std::uint16_t pattern : patterns) {
    ASSERT_EQ(bits_of(half[pattern]), bits_of(float(Half::from_bits(pattern)))) << pattern;
    ASSERT_EQ(bits_of(bfloat[pattern]), bits_of(float(BFloat16::from_bits(pattern)))) << pattern;
    float alone = 0;
    convert(DType::float16, &pattern, DType::float32, &alone, 1);
    ASSERT_EQ(bits_of(alone), bits_of(half[pattern])) << pattern;
  }
}

// 20 million patterns over all instruction sets: every upper half with lower halves around ties, then random
// ones.
TEST_P(ConvertTest, FloatsRoundLikeTheReference) {
  constexpr std::size_t kBlock = 1 << 16;
  std::vector<std::uint32_t> bits(kBlock);
  std::vector<std::uint16_t> half(kBlock), bfloat(kBlock);
  const std::uint32_t lowers[] = {0,      1,      0xFFF,  0x1000, 0x1001, 0x2FFF, 0x3000,
                                  0x3001, 0x7FFF, 0x8000, 0x8001, 0xF000, 0xFFFF};
  const int blocks = GetParam() == Target::baseline ? 30 : 100;  // the slowest one tests fewer
  Random random(7, 0, 0);
  for (int block = 0; block < blocks; ++block) {
    for (std::size_t i = 0; i < kBlock; ++i)
      bits[i] = block < 13 ? static_cast<std::uint32_t>(i << 16) | lowers[block]
                           : static_cast<std::uint32_t>(random.next());
    convert(DType::float32, bits.data(), DType::float16, half.data(), kBlock);
    convert(DType::float32, bits.data(), DType::bfloat16, bfloat.data(), kBlock);
    for (std::size_t i = 0; i < kBlock; ++i) {
      if (half[i] != half_reference::round<half_reference::kHalf>(bits[i]))
        FAIL() << std::hex << bits[i] << " half " << half[i];
      if (bfloat[i] != half_reference::round<half_reference::kBFloat16>(bits[i]))
        FAIL() << std::hex << bits[i] << " bfloat " << bfloat[i];
    }
  }
}

TEST_P(ConvertTest, EveryLengthAndPlace) {
  for (std::size_t count = 0; count <= 70; ++count)
    for (const std::size_t offset : {0U, 1U, 5U, 31U}) {
      const std::vector<float> values = odd_numbers<float>(count, count);
      Placed<float> in(values, offset);
      Placed<Half> half(count, offset + 1);
      Placed<BFloat16> bfloat(count, offset + 2);
      Placed<double> wide(count, offset + 3);
      Placed<float> back(count, offset + 4);
      convert(DType::float32, in.data(), DType::float16, half.data(), count);
      convert(DType::float32, in.data(), DType::bfloat16, bfloat.data(), count);
      convert(DType::float32, in.data(), DType::float64, wide.data(), count);
      convert(DType::float64, wide.data(), DType::float32, back.data(), count);
      ASSERT_TRUE(same_blocks(half.values(), std::vector<Half>([&] {
                                std::vector<Half> expected;
                                for (const float value : values) expected.push_back(Half(value));
                                return expected;
                              }())));
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(same(bfloat.values()[i], BFloat16(values[i])));
        ASSERT_TRUE(same(wide.values()[i], static_cast<double>(values[i])));
        ASSERT_TRUE(same(back.values()[i], values[i]));
      }
      ASSERT_TRUE(half.guards_stand() && bfloat.guards_stand() && wide.guards_stand() && back.guards_stand());
    }
}

TEST_P(ConvertTest, NonTemporalStoresGiveTheSameBits) {
  const std::vector<float> values = odd_numbers<float>(500, 3);
  const auto same_both_ways = [&]<typename To>(std::type_identity<To>) {
    for (std::size_t offset = 0; offset < 40; ++offset) {
      Placed<To> cached(values.size(), offset), streamed(values.size(), offset);
      convert(DType::float32, values.data(), dtype_of<To>, cached.data(), values.size(), Store::cached);
      convert(DType::float32, values.data(), dtype_of<To>, streamed.data(), values.size(), Store::streaming);
      ASSERT_TRUE(same_blocks(streamed.values(), cached.values())) << offset;
      ASSERT_TRUE(streamed.guards_stand());
      Placed<float> back(values.size(), offset), streamed_back(values.size(), offset);
      convert(dtype_of<To>, cached.data(), DType::float32, back.data(), values.size(), Store::cached);
      convert(dtype_of<To>, cached.data(), DType::float32, streamed_back.data(), values.size(),
              Store::streaming);
      ASSERT_TRUE(same_blocks(streamed_back.values(), back.values())) << offset;
    }
  };
  same_both_ways(std::type_identity<Half>{});
  same_both_ways(std::type_identity<BFloat16>{});
  same_both_ways(std::type_identity<double>{});
}

TEST_P(ConvertTest, DoublesRoundToNearestEven) {
  std::vector<double> in = {1 + std::ldexp(1.0, -24), 1 + std::ldexp(3.0, -24), 1e300, -1e-300, 0.1};
  for (int i = 0; i < 50; ++i) in.push_back(std::ldexp(1.0 / 3, i - 160));
  std::vector<float> out(in.size());
  convert(DType::float64, in.data(), DType::float32, out.data(), in.size());
  EXPECT_EQ(out[0], 1.0F);
  EXPECT_EQ(out[1], 1.0F + std::ldexp(1.0F, -22));
  EXPECT_EQ(out[2], HUGE_VALF);
  for (std::size_t i = 0; i < in.size(); ++i) EXPECT_EQ(bits_of(out[i]), bits_of(static_cast<float>(in[i])));
}

TEST(ConvertErrorTest, ACopyForEqualTypesAndNothingElse) {
  const std::int16_t in[] = {1, -2, 3};
  std::int16_t out[3] = {};
  convert(DType::int16, in, DType::int16, out, 3);
  EXPECT_THAT(out, testing::ElementsAre(1, -2, 3));
  convert(DType::uint8, nullptr, DType::uint8, nullptr, 0);
  EXPECT_THAT([&] { convert(DType::float64, in, DType::float16, out, 0); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("from float64 to float16")));
  EXPECT_THROW(convert(DType::int32, in, DType::float32, out, 0), InvalidArgument);
}

}  // namespace
}  // namespace starling::kernel
