#include "starling/codec/codec.h"

#include <cctype>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "base/test_name.h"
#include "blocks.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/target.h"

// Tests the contract that every codec keeps, whatever it does with the values.

namespace starling::codec {
namespace {

struct Case {
  std::string spec;
  std::size_t bytes_of_1000;  // of a float32 parameter with 1000 elements in 25 rows
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.spec;
}

const std::vector<Case> kCases = {{"identity", 4000},
                                  {"float16", 2000},
                                  {"bfloat16", 2000},
                                  {"uint8", 8 + 1000},
                                  {"uint8(chunk=64)", 16 * 8 + 1000},
                                  {"sign", 8 + 128},
                                  {"sign(chunk=64)", 16 * 4 + 128},
                                  {"vote", 128},
                                  {"qsgd", 2 * 4 + 1000},
                                  {"qsgd(levels=255)", 2 * 4 + 1128},
                                  {"qsgd(levels=7)", 2 * 4 + 504},
                                  {"qsgd(levels=1)", 2 * 4 + 256},
                                  {"qsgd(levels=32767, chunk=64)", 16 * 4 + 2000},
                                  {"top-k", 10 * 8},
                                  {"top-k(fraction=1)", 8000},
                                  {"random-k", 8 + 10 * 4},
                                  {"random-k(fraction=0.5, unbiased=true)", 8 + 500 * 4},
                                  {"powersgd", 2 * (25 + 40) * 4},
                                  {"powersgd(rank=1)", (25 + 40) * 4 + 4},
                                  {"powersgd(rank=16)", 4000}};

const std::vector<std::size_t> kCounts = {0,   1,   2,    7,    63,   64,   65,   127,
                                          128, 129, 1000, 2047, 2048, 2049, 4096, 5001};

class EveryCodec : public testing::TestWithParam<Case> {
 protected:
  void TearDown() override { use_target(available_targets().back()); }
  CodecPtr codec = make_codec(GetParam().spec);
};

std::string plain_name(const testing::TestParamInfo<Case>& tested) {
  return test_name(tested.param.spec);
}

INSTANTIATE_TEST_SUITE_P(Codecs, EveryCodec, testing::ValuesIn(kCases), plain_name);

TEST(Codecs, NoneIsMissingHere) {
  std::set<std::string> tested;
  for (const Case& c : kCases) tested.insert(c.spec.substr(0, c.spec.find('(')));
  for (const CodecFamily& family : codec_families())
    EXPECT_TRUE(tested.contains(family.name)) << family.name << " is not in kCases";
}

TEST_P(EveryCodec, HasTheDocumentedSize) {
  EXPECT_EQ(codec->encoded_bytes(DType::float32, {1000, 25}), GetParam().bytes_of_1000);
  if (GetParam().spec != "identity") {
    EXPECT_EQ(codec->encoded_bytes(DType::float64, {1000, 25}), GetParam().bytes_of_1000);
  }
  EXPECT_EQ(codec->encoded_bytes(DType::float32, {0, 0}), 0U);
  for (const std::size_t count : kCounts) EXPECT_EQ(codec->encoded_bytes(DType::float32, {count, 0}) % 8, 0U);
}

TEST_P(EveryCodec, KeepsInsideItsBlocksAndWritesEveryByteOfAMessage) {
  for (const std::size_t count : kCounts) {
    const std::vector<float> values = normal_numbers<float>(count, count);
    Message message = encoded(*codec, values);
    EXPECT_TRUE(message.guards_stand()) << count;
    Message other(codec->encoded_bytes(DType::float32, {count, 0}));
    std::memset(other.data(), 0x5A, other.buffer().count);
    codec->encode(values_in(values), 0, {}, other.buffer());
    // Both messages started with different bytes: every byte was written
    EXPECT_EQ(message.copy(), other.copy()) << count;
    decoded<float>(*codec, message, count);
  }
}

// Decoding depends on the message alone, and encoding the same values again gives the same message.
TEST_P(EveryCodec, EqualKeysGiveEqualMessages) {
  const std::vector<float> values = normal_numbers<float>(3000, 4);
  const CodecKey key{5, 6, 7};
  Message first = encoded(*codec, values, key);
  Message second = encoded(*make_codec(GetParam().spec), values, key);
  EXPECT_EQ(first.copy(), second.copy());
}

TEST_P(EveryCodec, IsTheSameOnEveryInstructionSet) {
  for (const std::size_t count : {1U, 65U, 3001U, 6000U}) {
    const std::vector<float> values = normal_numbers<float>(count, 8);
    std::vector<unsigned char> bytes;
    std::vector<float> back;
    for (const Target target : available_targets()) {
      use_target(target);
      Message message = encoded(*codec, values, {1, 2, 3});
      const std::vector<float> now = decoded<float>(*codec, message, count);
      if (target == Target::baseline) bytes = message.copy(), back = now;
      EXPECT_EQ(message.copy(), bytes) << name(target);
      EXPECT_EQ(now, back) << name(target);
    }
  }
}

TEST_P(EveryCodec, Float64GoesThroughFloat32) {
  if (GetParam().spec == "identity") GTEST_SKIP() << "keeps float64";
  for (const std::size_t count : kCounts) {
    const std::vector<double> wide = normal_numbers<double>(count, count + 1);
    const std::vector<float> narrow(wide.begin(), wide.end());
    const CodecKey key{1, 2, 3};
    Message from_wide = encoded(*codec, wide, key);
    Message from_narrow = encoded(*codec, narrow, key);
    EXPECT_EQ(from_wide.copy(), from_narrow.copy()) << count;
    const std::vector<float> back = decoded<float>(*codec, from_narrow, count);
    EXPECT_EQ(decoded<double>(*codec, from_wide, count), std::vector<double>(back.begin(), back.end()))
        << count;
  }
}

template <typename T>
void expect_added(const Codec& codec) {
  for (const std::size_t count : kCounts) {
    const std::vector<T> values = normal_numbers<T>(count, 3);
    Message message = encoded(codec, values, {1, 2, 3});
    const std::vector<T> back = decoded<T>(codec, message, count);
    std::vector<T> expected = normal_numbers<T>(count, 9), sum = expected;
    const Term terms[] = {{expected.data(), 1}, {back.data(), -0.3}};
    combine(dtype_of<T>, expected.data(), terms, count);
    codec.decode_add(message.buffer(), 0, -0.3, values_of(sum));
    EXPECT_EQ(sum, expected) << count;
  }
}

TEST_P(EveryCodec, DecodeAddAddsTheDecodedValues) {
  expect_added<float>(*codec);
  expect_added<double>(*codec);
}

TEST_P(EveryCodec, ZerosStayZeros) {
  if (GetParam().spec == "vote") GTEST_SKIP() << "has no zero";
  for (const std::size_t count : kCounts)
    for (const float value : passed(GetParam().spec, std::vector<float>(count, 0.0F))) EXPECT_EQ(value, 0.0F);
}

TEST_P(EveryCodec, StrangeValuesAreNotHiddenAndDoNoHarm) {
  if (GetParam().spec == "vote") GTEST_SKIP() << "has two values only";
  for (const float strange : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()})
    for (const std::size_t count : {1U, 100U, 3000U, 5001U}) {
      std::vector<float> values = normal_numbers<float>(count, 5);
      values[count / 2] = strange;
      for (const Target target : available_targets()) {
        use_target(target);
        Message message = encoded(*codec, values, {2, 2, 2});
        EXPECT_TRUE(message.guards_stand());
        const std::vector<float> back = decoded<float>(*codec, message, count);
        if (GetParam().spec.starts_with("random-k") && back[count / 2] == 0) continue;  // not chosen
        EXPECT_FALSE(std::isfinite(back[count / 2])) << strange;
      }
    }
  // Also blocks that hold nothing but such values, up to the largest finite number.
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min()}) {
    Message message = encoded(*codec, std::vector<float>(5001, value));
    EXPECT_TRUE(message.guards_stand());
    decoded<float>(*codec, message, 5001);
  }
}

TEST_P(EveryCodec, RefusesOtherElements) {
  EXPECT_THAT(
      [&] {
        codec->encoded_bytes(DType::float16, {4, 0});
      },
      testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("float32 or float64, not float16")));
  std::vector<std::int32_t> x(4);
  Message message(64);
  EXPECT_THROW(codec->encode(values_in(x), 0, {}, message.buffer()), InvalidArgument);
  EXPECT_THROW(codec->decode(message.buffer(), 0, values_of(x)), InvalidArgument);
  EXPECT_THROW(codec->decode_add(message.buffer(), 0, 1, values_of(x)), InvalidArgument);
}

TEST_P(EveryCodec, RefusesAMessageThatIsTooShortOrNotOfBytes) {
  std::vector<float> x(100);
  Message message = encoded(*codec, x);
  const Buffer whole = message.buffer();
  for (const Buffer& wrong :
       {whole.part(0, whole.count - 1), Buffer(DType::int8, message.data(), whole.count)}) {
    const auto names_both = testing::ThrowsMessage<InvalidArgument>(
        testing::AllOf(testing::HasSubstr(codec->canonical), testing::HasSubstr("of 100 x float32 is "),
                       testing::HasSubstr("not " + std::to_string(wrong.count) + " x " + name(wrong.dtype))));
    EXPECT_THAT([&] { codec->encode(values_in(x), 0, {}, wrong); }, names_both);
    EXPECT_THAT([&] { codec->decode(wrong, 0, values_of(x)); }, names_both);
    EXPECT_THAT([&] { codec->decode_add(wrong, 0, 1, values_of(x)); }, names_both);
  }
}

// Large parameters are written with non-temporal stores; adding to zeros never is.
TEST_P(EveryCodec, LargeParametersAreTheSame) {
  constexpr std::size_t kCount = (13U << 20) + 17;
  if (GetParam().spec.find('(') != std::string::npos) GTEST_SKIP() << "one of each name is enough";
  std::vector<float> values(kCount);
  const std::vector<float> some = normal_numbers<float>(10007, 3);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = some[i % some.size()];
  Message message = encoded(*codec, values);
  const std::vector<float> back = decoded<float>(*codec, message, kCount);
  std::vector<float> sum(kCount);
  codec->decode_add(message.buffer(), 0, 1, values_of(sum));
  EXPECT_TRUE(back == sum);
}

// A parameter's message does not depend on the parameters before it.
TEST_P(EveryCodec, MessagesCanFollowOneAnother) {
  const std::vector<float> first = normal_numbers<float>(131, 1), second = normal_numbers<float>(257, 2);
  const std::size_t bytes = codec->encoded_bytes(DType::float32, {131, 0});
  Message both(bytes + codec->encoded_bytes(DType::float32, {257, 0}));
  const Buffer rest = both.buffer().part(bytes, both.buffer().count - bytes);
  codec->encode(values_in(first), 0, {1, 0, 0}, both.buffer());
  codec->encode(values_in(second), 0, {1, 1, 0}, rest);
  EXPECT_TRUE(both.guards_stand());
  std::vector<float> back(257);
  codec->decode(rest, 0, values_of(back));
  EXPECT_EQ(back, passed(GetParam().spec, second, {1, 1, 0}));
}

TEST(VoteCodec, DecodesToOneOrMinusOneAndZeroCountsAsOne) {
  const std::vector<float> values = {3, -0.5F, 0, -0.0F, -7, 1e-30F};
  const std::vector<float> back = passed("vote", values);
  EXPECT_EQ(back[0], 1);
  EXPECT_EQ(back[1], -1);
  EXPECT_EQ(back[2], 1);
  EXPECT_EQ(back[4], -1);
  EXPECT_EQ(back[5], 1);
}

}  // namespace
}  // namespace starling::codec
