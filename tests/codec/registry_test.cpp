#include "starling/codec/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/base/error.h"
#include "starling/codec/host_codec.h"

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

TEST(CodecRegistry, MakesEveryCodecWithItsDefaultsAndKeepsItsSpec) {
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

TEST(CodecRegistry, RefusesInvalidParameters) {
  EXPECT_THAT(refusal("fp16(h=3)"), HasSubstr("h"));
  EXPECT_THAT(refusal("uint8(chunk=100)"), HasSubstr("64 or 128"));
  EXPECT_THAT(refusal("uint8(chunk=0)"), HasSubstr("chunk"));
  EXPECT_THAT(refusal("qsgd(levels=40000)"), HasSubstr("32767"));
  EXPECT_THAT(refusal("top-k(fraction=0)"), HasSubstr("fraction"));
  EXPECT_THAT(refusal("random-k(fraction=1.5)"), HasSubstr("fraction"));
  EXPECT_THAT(refusal("powersgd(rank=0)"), HasSubstr("rank"));
}

TEST(CodecRegistry, TakesAProgramsOwnCodecOnce) {
  class Nothing : public HostCodec {
   public:
    std::size_t encoded_bytes(DType, CodecShape) const override { return 0; }

   private:
    void host_encode(ConstBuffer, std::size_t, const CodecKey&, std::span<std::byte>) const override {}
    void host_decode(std::span<const std::byte>, std::size_t, Buffer out) const override {
      std::fill_n(out.host<float>(), out.count, 3.0F);
    }
  };
  const CodecFamily family{
      "nothing", "sends nothing", {}, [](const Parameters&) { return std::make_shared<Nothing>(); }};
  register_codec(family);
  EXPECT_THAT([&] { register_codec(family); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("'nothing' exists already")));
  std::vector<float> x(5, 1.0F);
  // Calls the default implementation of decode_add().
  make_codec("nothing")->decode_add({DType::uint8, nullptr, 0}, 0, 2.0, {DType::float32, x.data(), 5});
  EXPECT_EQ(x, std::vector<float>(5, 7.0F));
}

}  // namespace
}  // namespace starling::codec
