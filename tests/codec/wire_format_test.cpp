#include "starling/codec/wire_format.h"

#include <gmock/gmock.h>
#include <random>

#include "starling/base/error.h"
#include "starling/codec/registry.h"

namespace starling::codec {
namespace {

Buffer floats(std::vector<float>& values) {
  return {DType::float32, values.data(), values.size()};
}

std::vector<float> some_values(std::size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(WireFormatTest, OldSpellingsMeanTheCanonicalOne) {
  const std::pair<const char*, std::vector<const char*>> spellings[] = {
      {"float32", {"float32", "fp32"}},
      {"float16", {"float16", "fp16", "half"}},
      {"bfloat16", {"bfloat16", "bf16"}},
      {"int8", {"int8", "uint8"}}};
  for (const auto& [canonical, all] : spellings)
    for (const char* text : all) {
      EXPECT_EQ(parse_wire_format(text), canonical);
      EXPECT_EQ(make_wire_format(text)->name(), canonical);
    }
  EXPECT_THAT([] { parse_wire_format("float61"); },
              testing::ThrowsMessage<InvalidArgument>(testing::AllOf(
                  testing::HasSubstr("float61"), testing::HasSubstr("float32, float16, bfloat16"))));
}

// A float16 or bfloat16 message equals that of the codec of the same name, without padding.
TEST(WireFormatTest, HalfPrecisionIsThatOfTheCodec) {
  std::vector<float> values = some_values(5003);
  for (const char* name : {"float16", "bfloat16"}) {
    const WireFormatPtr format = make_wire_format(name);
    const CodecPtr codec = make_codec(name);
    std::vector<std::byte> message(format->encoded_bytes(values.size()));
    std::vector<std::byte> expected(codec->encoded_bytes(DType::float32, {values.size(), 0}));
    format->encode(floats(values), {format->dtype(), message.data(), values.size()});
    codec->encode(floats(values), 0, {}, {DType::uint8, expected.data(), expected.size()});
    expected.resize(message.size());
    EXPECT_EQ(message, expected) << name;
    EXPECT_EQ(codec->canonical, make_codec(wire_format_aliases(name)[0])->canonical);
  }
}

// decode() and combine_around() agree: a message combined with zeros gives its decoded values.
TEST(WireFormatTest, DecodeAgreesWithCombineAround) {
  std::vector<float> values = some_values(1300), zeros(values.size());
  for (const char* name : {"float32", "float16", "bfloat16", "int8"}) {
    const WireFormatPtr format = make_wire_format(name, {100, 101, 1300});
    const std::size_t bytes = format->encoded_bytes(values.size());
    std::vector<std::byte> message(bytes), own(bytes);
    const Buffer sent(format->dtype(), message.data(), format->encoded_count(values.size()));
    const Buffer of_zeros = sent.at<void>(own.data());
    format->encode(floats(values), sent);
    format->encode(floats(zeros), of_zeros);
    std::vector<float> decoded(values.size()), difference(values.size());
    format->decode(sent, floats(decoded));
    const Term terms[] = {{sent, 1}};
    format->combine_around(floats(difference), {}, of_zeros, terms);
    EXPECT_EQ(decoded, difference) << name;
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(decoded[i], values[i], format->exact() ? 0 : 2e-2) << name << " at " << i;
    EXPECT_EQ(decoded == values, format->exact()) << name;
  }
}

// Each run of at most 512 elements has its own two grid parameters; no run crosses the end of a parameter.
TEST(WireFormatTest, Int8MessagesHaveAGridForEveryRun) {
  EXPECT_EQ(make_wire_format("int8")->encoded_bytes(512), 8 + 512);
  EXPECT_EQ(make_wire_format("int8")->encoded_bytes(513), 16 + 520);
  EXPECT_EQ(make_wire_format("int8", {100, 513})->encoded_bytes(513), 16 + 520);
  EXPECT_EQ(make_wire_format("int8", {100, 613})->encoded_bytes(613), 24 + 616);
  EXPECT_FALSE(make_wire_format("int8")->summable());
}

}  // namespace
}  // namespace starling::codec
