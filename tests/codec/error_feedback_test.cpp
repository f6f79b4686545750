#include "starling/codec/error_feedback.h"

#include <gmock/gmock.h>

#include "blocks.h"

namespace starling::codec {
namespace {

template <typename T>
void expect_nothing_lost(const std::string& spec, double tolerance) {
  constexpr std::size_t kCount = 3001;
  constexpr int kSteps = 30;
  const CodecPtr codec = make_codec(spec);
  std::vector<T> residual(kCount), arrived(kCount);
  std::vector<double> sent(kCount);
  bool late = false;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<T> in = normal_numbers<T>(kCount, static_cast<std::uint64_t>(step));
    const std::vector<T> before = residual;
    Message message(codec->encoded_bytes(dtype_of<T>, {kCount, 0}));
    encode_with_feedback(*codec, values_in(in), values_of(residual), 0, {1, 2, step}, message.buffer());
    const std::vector<T> now = decoded<T>(*codec, message, kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      sent[i] += static_cast<double>(in[i]);
      arrived[i] += now[i];
      EXPECT_EQ(residual[i], (in[i] + before[i]) - now[i]);
      late = late || residual[i] != 0;
    }
  }
  for (std::size_t i = 0; i < kCount; ++i)
    EXPECT_NEAR(static_cast<double>(arrived[i]) + static_cast<double>(residual[i]), sent[i], tolerance)
        << spec;
  EXPECT_EQ(late, spec != "identity");
}

TEST(ErrorFeedback, DecodedPlusResidualIsTheInput) {
  for (const CodecFamily& family : codec_families()) {
    if (family.name == "nothing") continue;  // registered by another test
    expect_nothing_lost<float>(family.name, 5e-3);
    expect_nothing_lost<double>(family.name, 1e-9);
  }
}

TEST(ErrorFeedback, RefusesOtherElementsAndAnotherResidual) {
  Message message(64);
  const auto refused = [&](ConstBuffer in, Buffer residual, const std::string& why) {
    EXPECT_THAT([&] { encode_with_feedback(*make_codec("fp16"), in, residual, 0, {}, message.buffer()); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr(why)));
  };
  std::vector<Half> halves(2);
  refused(values_in(halves), values_of(halves), "not float16");
  std::vector<float> in(2), longer(3);
  std::vector<double> wide(2);
  refused(values_in(in), values_of(longer), "the residual of 2 x float32 has 3 x float32");
  refused(values_in(in), values_of(wide), "the residual of 2 x float32 has 2 x float64");
}

}  // namespace
}  // namespace starling::codec
