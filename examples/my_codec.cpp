// A codec of your own: a class with three functions, and one line to register it. This one sends the mean of
// every eight elements; error feedback sends the rest later.
#include <cmath>
#include <cstring>
#include <iostream>
#include <starling/starling.h>

using namespace starling;

class MeanOfEight final : public HostCodec {
 public:
  std::size_t encoded_bytes(DType, CodecShape shape) const override {
    return whole_message((shape.count + 7) / 8 * sizeof(float));
  }

 private:
  void host_encode(ConstBuffer in, std::size_t, const CodecKey&,
                   std::span<std::byte> message) const override {
    std::memset(message.data(), 0, message.size());
    auto* means = reinterpret_cast<float*>(message.data());
    with_elements(in, [&](const auto* x) {
      for (std::size_t i = 0; i < in.count; ++i) means[i / 8] += static_cast<float>(x[i] / 8);
    });
  }

  void host_decode(std::span<const std::byte> message, std::size_t, Buffer out) const override {
    const auto* means = reinterpret_cast<const float*>(message.data());
    with_elements(out, [&]<typename E>(E* x) {
      for (std::size_t i = 0; i < out.count; ++i) x[i] = static_cast<E>(means[i / 8]);
    });
  }
};

int main() {
  register_codec({"mean-of-eight", "the mean of every eight elements", {}, [](const Parameters&) {
                    return std::make_shared<MeanOfEight>();
                  }});

  const CodecPtr codec = make_codec("mean-of-eight");
  std::vector<float> x(1000), residual(x.size()), arrived(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  std::vector<std::uint8_t> message(codec->encoded_bytes(DType::float32, {.count = x.size()}));
  encode_with_feedback(*codec, buffer_of(x), buffer_of(residual), 0, {.seed = 1}, buffer_of(message));
  codec->decode(buffer_of(message), 0, buffer_of(arrived));

  float lost = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    lost = std::max(lost, std::fabs(x[i] - arrived[i] - residual[i]));
  std::cout << x.size() * sizeof(float) << " bytes as " << message.size()
            << "; what did not arrive waits in the residual, but for " << lost << '\n';
  return lost < 1e-6F && message.size() == 504 ? 0 : 1;
}
