#include "starling/codec/error_feedback.h"

#include <gtest/gtest.h>

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
    encode_with_feedback(*codec, dtype_of<T>, in.data(), residual.data(), {kCount, 0}, {1, 2, step},
                         message.data());
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

TEST(ErrorFeedback, RefusesOtherElements) {
  std::byte message[8];
  Half x{}, residual{};
  EXPECT_THROW(encode_with_feedback(*make_codec("fp16"), DType::float16, &x, &residual, {1, 0}, {}, message),
               InvalidArgument);
}

}  // namespace
}  // namespace starling::codec
