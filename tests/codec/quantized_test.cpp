#include <gtest/gtest.h>

#include "blocks.h"
#include "starling/codec/bits.h"
#include "starling/codec/draws.h"

// Tests the codecs that encode every element in a few bits, against their definitions.

namespace starling::codec {
namespace {

TEST(Uint8Codec, ErrsByHalfAStepOfTheChunkAtMost) {
  const std::vector<float> values = normal_numbers<float>(2048 * 2 + 77, 1);
  const std::vector<float> back = passed("uint8", values);
  for (std::size_t begin = 0; begin < values.size(); begin += 2048) {
    const auto from = values.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto to = values.begin() + static_cast<std::ptrdiff_t>(std::min(values.size(), begin + 2048));
    const float step = (*std::max_element(from, to) - *std::min_element(from, to)) / 255;
    for (auto x = from; x != to; ++x)
      // Codes are aligned with the greatest value, so the error of the least value can be up to one step.
      EXPECT_LE(std::fabs(*x - back[static_cast<std::size_t>(x - values.begin())]), 1.02F * step);
  }
}

TEST(Uint8Codec, AChunkDoesNotSeeItsNeighbors) {
  std::vector<float> values = normal_numbers<float>(300, 1);
  const std::vector<float> before = passed("uint8(chunk=128)", values);
  values[128] = 1e6F;
  const std::vector<float> after = passed("uint8(chunk=128)", values);
  EXPECT_EQ(std::vector<float>(before.begin(), before.begin() + 128),
            std::vector<float>(after.begin(), after.begin() + 128));
  EXPECT_EQ(std::vector<float>(before.begin() + 256, before.end()),
            std::vector<float>(after.begin() + 256, after.end()));
  EXPECT_NE(before[129], after[129]);
}

TEST(SignCodec, IsTheSignTimesTheMeanMagnitudeOfTheChunk) {
  for (const std::size_t count : {1U, 5U, 64U, 127U, 128U, 129U, 1000U}) {
    std::vector<float> values = normal_numbers<float>(count, count);
    values[count / 2] = count % 2 == 0 ? -0.0F : 0.0F;
    const std::vector<float> back = passed("sign(chunk=128)", values);
    for (std::size_t begin = 0; begin < count; begin += 128) {
      const std::size_t end = std::min(count, begin + 128);
      double sum = 0;
      for (std::size_t i = begin; i < end; ++i) sum += std::fabs(static_cast<double>(values[i]));
      const double mean = sum / static_cast<double>(end - begin);
      for (std::size_t i = begin; i < end; ++i)
        EXPECT_NEAR(back[i], values[i] < 0 ? -mean : mean, 1e-6 * mean) << i << " of " << count;
    }
  }
}

TEST(SignCodec, AnInfinityMakesItsChunkInfiniteAndANaNMakesItNaN) {
  std::vector<float> values = normal_numbers<float>(256, 1);
  values[70] = -std::numeric_limits<float>::infinity();
  values[200] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> back = passed("sign(chunk=64)", values);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t chunk = i / 64;
    EXPECT_EQ(std::isinf(back[i]), chunk == 1);
    EXPECT_EQ(std::isnan(back[i]), chunk == 3);
  }
}

TEST(PackedBits, ComeBackWithTheirSigns) {
  Random random(1, 2, 3);
  for (unsigned bits = 2; bits <= 16; ++bits)
    for (const std::size_t count : {0U, 1U, 3U, 4U, 5U, 31U, 63U, 64U, 65U, 200U}) {
      std::vector<std::int16_t> codes(count), back(count);
      for (std::int16_t& code : codes)
        code = static_cast<std::int16_t>(static_cast<std::int32_t>(random.next()) >> (32 - bits));
      Message message(whole_message((count * bits + 7) / 8));
      pack_bits(codes, bits, message.data());
      unpack_bits(message.data(), bits, back);
      EXPECT_EQ(back, codes) << bits << " bits, " << count;
      EXPECT_TRUE(message.guards_stand());
    }
  // The first code occupies the lowest bits.
  const std::vector<std::int16_t> codes = {1, -1, 2};
  std::uint64_t word = 0;
  pack_bits(codes, 3, reinterpret_cast<std::byte*>(&word));
  EXPECT_EQ(word, 0b010'111'001U);
}

// Reference from the definition: scalar float64 arithmetic, one Philox block at a time.
std::vector<double> qsgd_reference(const std::vector<float>& values, int levels, std::size_t chunk,
                                   const CodecKey& key) {
  std::vector<double> out(values.size());
  for (std::size_t begin = 0; begin < values.size(); begin += chunk) {
    const std::size_t end = std::min(values.size(), begin + chunk);
    double norm = 0;
    for (std::size_t i = begin; i < end; ++i) norm += std::pow(static_cast<double>(values[i]), 2);
    norm = std::sqrt(norm);
    for (std::size_t i = begin; i < end; ++i) {
      const auto block = static_cast<std::uint32_t>(i / 64 * 16 + i % 32 / 2);
      const std::uint32_t drawn = philox({block, 0, 0, 0}, draw_key(key))[i % 64 / 32 * 2 + i % 2];
      const double scaled = std::fabs(static_cast<double>(values[i])) / norm * levels;
      const bool up = drawn / 4294967296.0 < scaled - std::floor(scaled);
      out[i] =
          std::copysign((std::floor(scaled) + (up ? 1 : 0)) / levels * norm, static_cast<double>(values[i]));
    }
  }
  return out;
}

TEST(QsgdCodec, MatchesItsDefinition) {
  for (const int levels : {1, 2, 7, 64, 127, 255, 32767})
    for (const std::size_t count : {1U, 63U, 64U, 65U, 511U, 512U, 513U, 3000U}) {
      const std::vector<float> values = normal_numbers<float>(count, count);
      const CodecKey key{3, count, levels};
      const std::vector<double> expected = qsgd_reference(values, levels, 512, key);
      const std::vector<float> back = passed("qsgd(levels=" + std::to_string(levels) + ")", values, key);
      // A draw within rounding error of the fraction may be rounded the other way; that should almost never
      // happen.
      std::size_t other = 0;
      for (std::size_t i = 0; i < count; ++i)
        if (std::fabs(back[i] - expected[i]) > 1e-5 * std::fabs(expected[i]) + 1e-7) ++other;
      EXPECT_LE(other, levels > 1000 ? 1 + count / 50 : 0U) << levels << " levels, " << count;
    }
}

TEST(QsgdCodec, IsUnbiasedAndVariesAsChanceWouldHaveIt) {
  constexpr std::size_t kCount = 512;
  constexpr int kDraws = 4000;
  const std::vector<float> values = normal_numbers<float>(kCount, 1);
  double norm = 0;
  for (const float value : values) norm += std::pow(static_cast<double>(value), 2);
  norm = std::sqrt(norm);
  for (const int levels : {1, 7, 127}) {
    const CodecPtr codec = make_codec("qsgd(levels=" + std::to_string(levels) + ")");
    std::vector<double> mean(kCount);
    for (int draw = 0; draw < kDraws; ++draw) {
      Message message = encoded(*codec, values, {1, 2, draw});
      const std::vector<float> back = decoded<float>(*codec, message, kCount);
      for (std::size_t i = 0; i < kCount; ++i) mean[i] += static_cast<double>(back[i]) / kDraws;
    }
    double squares = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double step = norm / levels, x = static_cast<double>(values[i]);
      const double up = std::fabs(x) / step - std::floor(std::fabs(x) / step);
      const double expected = step * std::sqrt(up * (1 - up) / kDraws);
      EXPECT_NEAR(mean[i], x, 6 * expected + 4 * step / kDraws) << levels << " levels, element " << i;
      squares += std::pow((mean[i] - x) / expected, 2) / kCount;
    }
    EXPECT_NEAR(squares, 1, 0.25) << levels;
  }
}

TEST(QsgdCodec, StreamsAndSeedsDrawDifferently) {
  const std::vector<float> values = normal_numbers<float>(1000, 1);
  const std::vector<float> first = passed("qsgd(levels=1)", values, {1, 1, 1});
  for (const CodecKey& key : {CodecKey{2, 1, 1}, CodecKey{1, 2, 1}, CodecKey{1, 1, 2},
                              CodecKey{1, 1 + (1ULL << 40), 1}, CodecKey{1, 1, 1 + (1LL << 40)}})
    EXPECT_NE(passed("qsgd(levels=1)", values, key), first);
}

}  // namespace
}  // namespace starling::codec
