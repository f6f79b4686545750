#include "starling/codec/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/base/error.h"

namespace starling::codec {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    make_codec(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

TEST(CodecRegistry, MakesEveryCodecWithItsDefaultsAndRemembersWhatWasAsked) {
  for (const CodecFamily& family : codec_families()) {
    EXPECT_EQ(make_codec(family.name)->spec, family.name);
    EXPECT_FALSE(family.summary.empty());
  }
  EXPECT_EQ(make_codec("uint8( chunk=128 )")->spec, "uint8(chunk=128)");
}

TEST(CodecRegistry, NamesTheClosestCodecAndAllValidOnes) {
  EXPECT_THAT(refusal("uint9"), HasSubstr("did you mean uint8?"));
  EXPECT_THAT(refusal("zip"), HasSubstr("valid are identity, float16, bfloat16"));
  EXPECT_THAT(refusal("[fp16]"), HasSubstr("list"));
}

TEST(CodecRegistry, RefusesWhatACodecCannotBe) {
  EXPECT_THAT(refusal("fp16(h=3)"), HasSubstr("h"));
  EXPECT_THAT(refusal("uint8(chunk=100)"), HasSubstr("64 or 128"));
  EXPECT_THAT(refusal("uint8(chunk=0)"), HasSubstr("chunk"));
  EXPECT_THAT(refusal("qsgd(levels=40000)"), HasSubstr("32767"));
  EXPECT_THAT(refusal("top-k(fraction=0)"), HasSubstr("fraction"));
  EXPECT_THAT(refusal("random-k(fraction=1.5)"), HasSubstr("fraction"));
  EXPECT_THAT(refusal("powersgd(rank=0)"), HasSubstr("rank"));
}

TEST(CodecRegistry, TakesAProgramsOwnCodecOnce) {
  class Nothing : public Codec {
   public:
    std::size_t encoded_bytes(DType, CodecShape) const override { return 0; }
    void encode(DType, const void*, CodecShape, const CodecKey&, std::byte*) const override {}
    void decode(DType, const std::byte*, CodecShape shape, void* out) const override {
      std::fill_n(static_cast<float*>(out), shape.count, 3.0F);
    }
  };
  const CodecFamily family{
      "nothing", "sends nothing", {}, [](const Parameters&) { return std::make_shared<Nothing>(); }};
  register_codec(family);
  EXPECT_THAT([&] { register_codec(family); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("'nothing' exists already")));
  std::vector<float> x(5, 1.0F);
  make_codec("nothing")->decode_add(DType::float32, nullptr, {5, 0}, 2.0, x.data());  // the default one
  EXPECT_EQ(x, std::vector<float>(5, 7.0F));
}

}  // namespace
}  // namespace starling::codec
