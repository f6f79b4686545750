#include "starling/kernel/quantize.h"

#include <cmath>
#include <limits>

#include "blocks.h"

namespace starling::kernel {
namespace {

class QuantizeTest : public EveryTarget {};
STARLING_ON_EVERY_TARGET(QuantizeTest);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> numbers(std::size_t count, std::uint64_t seed, float from, float to) {
  Random random(seed, 0, 0);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(from + (double{to} - double{from}) * random.uniform());
  return values;
}

// The definition, with every operation rounded to float32.
struct Bagua {
  explicit Bagua(ValueRange range) {
    volatile float width = range.greatest - range.least;
    volatile float wider = width + 1e-7F;
    s = 255.0F / wider;
    volatile float top = range.greatest * s;
    ub = std::rint(static_cast<float>(top));
    lb = ub - 255.0F;
  }
  std::uint8_t code(float x) const {
    if (!std::isfinite(ub)) return 255;
    volatile float scaled = x * s;
    const float q = std::min(std::rint(static_cast<float>(scaled)), ub) - lb;
    return static_cast<std::uint8_t>(std::clamp(q, 0.0F, 255.0F));
  }
  float value(std::uint8_t q) const {
    volatile float sum = static_cast<float>(q) + lb;
    return sum / s;
  }
  float s = 0, ub = 0, lb = 0;
};

TEST_P(QuantizeTest, TheRangeIsFoundWhereverItsEndsLie) {
  for (std::size_t count = 1; count <= 200; ++count) {
    const std::vector<float> inside = numbers(count, count, -1, 1);
    for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
      std::vector<float> values = inside;
      values[at] = 7;
      values[(at + 1) % count] = -9;
      Placed<float> placed(values, count % 5);
      const ValueRange range = value_range(placed.data(), count);
      EXPECT_EQ(range.least, -9.0F) << count;
      EXPECT_EQ(range.greatest, count == 1 ? -9.0F : 7.0F) << count;
    }
  }
}

TEST_P(QuantizeTest, ARangeWithNaNIsNaNAndZerosArePositive) {
  for (const std::size_t count : {1U, 5U, 64U, 200U})
    for (std::size_t at = 0; at < count; at += 3) {
      std::vector<float> values = numbers(count, 1, -1, 1);
      values[at] = kNaN;
      const ValueRange range = value_range(values.data(), count);
      EXPECT_TRUE(std::isnan(range.least) && std::isnan(range.greatest)) << at;
    }
  std::vector<float> infinite(130, 1);
  infinite[3] = kInfinity, infinite[3 + 16] = -kInfinity, infinite[100] = -kInfinity;
  EXPECT_EQ(value_range(infinite.data(), infinite.size()).least, -kInfinity);
  EXPECT_EQ(value_range(infinite.data(), infinite.size()).greatest, kInfinity);
  for (const std::size_t count : {1U, 100U}) {
    std::vector<float> zeros(count, -0.0F);
    zeros[count / 2] = count == 1 ? -0.0F : 0.0F;
    const ValueRange range = value_range(zeros.data(), count);
    EXPECT_FALSE(std::signbit(range.least) || std::signbit(range.greatest));
  }
}

TEST_P(QuantizeTest, Uint8MatchesItsDefinitionBitForBit) {
  struct Between {
    float from, to;
  };
  for (const Between between :
       {Between{-1, 1}, Between{3, 3}, Between{1000, 1000.001F}, Between{-1e-9F, 1e-9F}, Between{0, 1e20F},
        Between{-3e38F, 3e38F}, Between{1e-42F, 1e-40F}, Between{-7, -6}})
    for (const std::size_t count : {1U, 2U, 15U, 16U, 17U, 63U, 64U, 100U, 2048U, 2049U}) {
      const std::vector<float> values = numbers(count, count, between.from, between.to);
      const ValueRange range = value_range(values.data(), count);
      const Bagua bagua(range);
      std::vector<std::uint8_t> codes(count);
      std::vector<float> decoded(count);
      for (std::size_t i = 0; i < count; ++i) {
        codes[i] = bagua.code(values[i]);
        decoded[i] = bagua.value(codes[i]);
      }
      for (const Store store : {Store::cached, Store::streaming}) {
        Placed<float> in(values, count % 7);
        Placed<std::uint8_t> out(count, count % 3);
        quantize_uint8(in.data(), count, range, out.data());
        ASSERT_TRUE(same_blocks(out.values(), codes)) << between.from << " .. " << between.to;
        Placed<float> back(count, count % 6);
        dequantize_uint8(out.data(), count, range, back.data(), store);
        ASSERT_TRUE(same_blocks(back.values(), decoded)) << between.from << " .. " << between.to;
        ASSERT_TRUE(out.guards_stand() && back.guards_stand());
      }
    }
}

TEST_P(QuantizeTest, Uint8RoundsTiesToEvenAndHoldsValuesOutsideTheRange) {
  // scale is 1 within rounding: 255 / (255 + 1e-7).
  const ValueRange range{0, 255};
  const std::vector<float> values = {0.5F, 1.5F, 2.5F, 254.5F, -3, 300, 255, 0};
  const std::vector<std::uint8_t> expected = {0, 2, 2, 254, 0, 255, 255, 0};
  for (std::size_t repeat = 1; repeat <= 8; ++repeat) {
    std::vector<float> in;
    std::vector<std::uint8_t> codes;
    for (std::size_t r = 0; r < repeat; ++r) {
      in.insert(in.end(), values.begin(), values.end());
      codes.insert(codes.end(), expected.begin(), expected.end());
    }
    std::vector<std::uint8_t> out(in.size());
    quantize_uint8(in.data(), in.size(), range, out.data());
    EXPECT_TRUE(same_blocks(out, codes));
  }
}

TEST_P(QuantizeTest, Uint8OfStrangeValuesIsNaN) {
  for (const float strange : {kNaN, kInfinity, -kInfinity}) {
    std::vector<float> values = numbers(100, 2, -1, 1);
    values[37] = strange;
    const ValueRange range = value_range(values.data(), values.size());
    std::vector<std::uint8_t> codes(100, 9);
    std::vector<float> back(100);
    quantize_uint8(values.data(), 100, range, codes.data());
    EXPECT_EQ(codes, std::vector<std::uint8_t>(100, 255));
    dequantize_uint8(codes.data(), 100, range, back.data());
    for (const float value : back) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(QuantizeTest, SignsAreBitsAndTheirSumHasOneOrder) {
  for (std::size_t count = 0; count <= 300; ++count) {
    std::vector<float> values = numbers(count, count, -1, 1);
    for (std::size_t i = 0; i < count; i += 7) values[i] = i % 2 == 0 ? 0.0F : -0.0F;
    std::vector<std::uint8_t> bits((count + 7) / 8);
    float sums[64] = {};
    for (std::size_t i = 0; i < count; ++i) {
      bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | ((values[i] < 0 ? 1 : 0) << (i % 8)));
      sums[i % 64] += std::fabs(values[i]);
    }
    double eight[8] = {};
    for (std::size_t k = 0; k < 64; ++k) eight[k % 8] += static_cast<double>(sums[k]);
    const double sum =
        ((eight[0] + eight[4]) + (eight[1] + eight[5])) + ((eight[2] + eight[6]) + (eight[3] + eight[7]));
    Placed<float> in(values, count % 5);
    Placed<std::uint8_t> out(bits.size(), count % 3);
    EXPECT_EQ(pack_signs(in.data(), count, out.data()), sum);
    EXPECT_TRUE(out.guards_stand());
    ASSERT_TRUE(same_blocks(out.values(), bits)) << count;
    std::vector<float> expected(count);
    for (std::size_t i = 0; i < count; ++i) expected[i] = values[i] < 0 ? -2.5F : 2.5F;
    for (const std::size_t offset : {0U, 1U, 16U})
      for (const Store store : {Store::cached, Store::streaming}) {
        Placed<float> back(count, offset);
        unpack_signs(out.data(), count, 2.5F, back.data(), store);
        EXPECT_TRUE(back.guards_stand());
        ASSERT_TRUE(same_blocks(back.values(), expected)) << count;
      }
  }
}

TEST_P(QuantizeTest, ALongSumOfMagnitudesIsPrecise) {
  const std::vector<float> values = numbers(300'001, 1, -1, 1);
  std::vector<std::uint8_t> bits((values.size() + 7) / 8);
  double exact = 0;
  for (const float value : values) exact += std::fabs(static_cast<double>(value));
  EXPECT_NEAR(pack_signs(values.data(), values.size(), bits.data()), exact, 1e-7 * exact);
}

TEST_P(QuantizeTest, RandomWordsAreThoseOfPhilox) {
  const std::uint64_t key = 0x123456789ABCDEFU;
  for (const std::size_t first : {std::size_t{0}, std::size_t{64}, std::size_t{1} << 34})
    for (const std::size_t count : {0U, 1U, 31U, 32U, 33U, 63U, 64U, 65U, 200U}) {
      std::vector<std::uint32_t> expected(count), words(count + 1, 7);
      for (std::size_t e = 0; e < count; ++e) {
        const std::uint64_t block = (first + e) / 64 * 16 + e % 32 / 2;
        const auto four =
            philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, key);
        expected[e] = four[e % 64 / 32 * 2 + e % 2];
      }
      random_words(key, first, count, words.data());
      EXPECT_EQ(words.back(), 7U);
      words.pop_back();
      EXPECT_EQ(words, expected) << first << ", " << count;
    }
}

template <typename Code>
void expect_levels(int levels) {
  for (std::size_t count = 0; count <= 200; count += count < 70 ? 1 : 13) {
    std::vector<float> values = numbers(count, count, -1, 1);
    if (count > 3) values[0] = 1, values[1] = -1, values[2] = -0.0F, values[3] = 1.5F;  // clamped to `levels`
    std::vector<std::uint32_t> words(count);
    random_words(count, 0, count, words.data());
    const auto scale = static_cast<float>(levels);
    std::vector<float> expected(count);
    Placed<float> in(values, count % 5);
    Placed<Code> out(count, count % 3);
    quantize_levels(in.data(), words.data(), count, scale, levels, out.data());
    EXPECT_TRUE(out.guards_stand());
    for (std::size_t i = 0; i < count; ++i) {
      const float scaled = std::fabs(values[i]) * scale;
      const float drawn = static_cast<float>(words[i] >> 8) * 0x1p-24F;
      const int level =
          std::min(static_cast<int>(scaled) + (drawn < scaled - std::floor(scaled) ? 1 : 0), levels);
      ASSERT_EQ(out.values()[i], static_cast<Code>(values[i] < 0 ? -level : level)) << i << " of " << count;
      expected[i] = static_cast<float>(out.values()[i]) * 0.3F;
    }
    for (const Store store : {Store::cached, Store::streaming}) {
      Placed<float> back(count, count % 6);
      dequantize_levels(out.data(), count, 0.3F, back.data(), store);
      EXPECT_TRUE(back.guards_stand());
      ASSERT_TRUE(same_blocks(back.values(), expected));
    }
  }
}

TEST_P(QuantizeTest, LevelsAreRoundedAsTheDrawSays) {
  for (const int levels : {1, 5, 127}) expect_levels<std::int8_t>(levels);
  for (const int levels : {1, 255, 32767}) expect_levels<std::int16_t>(levels);
}

}  // namespace
}  // namespace starling::kernel
