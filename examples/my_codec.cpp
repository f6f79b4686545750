// A codec of your own: a class with three functions, and one line to register it. This one sends the mean of
// every eight elements; error feedback makes up for the rest.
#include <cmath>
#include <cstring>
#include <iostream>
#include <starling/starling.h>

using namespace starling;

class MeanOfEight final : public Codec {
 public:
  std::size_t encoded_bytes(DType, CodecShape shape) const override {
    return whole_message(groups(shape) * sizeof(float));
  }

  void encode(DType dtype, const void* in, CodecShape shape, const CodecKey&, std::byte* out) const override {
    std::memset(out, 0, encoded_bytes(dtype, shape));
    auto* means = reinterpret_cast<float*>(out);
    for (std::size_t i = 0; i < shape.count; ++i) {
      const double x = is_wide(dtype) ? static_cast<const double*>(in)[i] : static_cast<const float*>(in)[i];
      means[i / 8] += static_cast<float>(x / 8);
    }
  }

  void decode(DType dtype, const std::byte* in, CodecShape shape, void* out) const override {
    const auto* means = reinterpret_cast<const float*>(in);
    for (std::size_t i = 0; i < shape.count; ++i)
      if (is_wide(dtype))
        static_cast<double*>(out)[i] = means[i / 8];
      else
        static_cast<float*>(out)[i] = means[i / 8];
  }

 private:
  static std::size_t groups(CodecShape shape) { return (shape.count + 7) / 8; }
};

int main() {
  register_codec({"mean-of-eight", "the mean of every eight elements", {}, [](const Parameters&) {
                    return std::make_shared<MeanOfEight>();
                  }});

  const CodecPtr codec = make_codec("mean-of-eight");
  const CodecShape shape{1000, 0};
  std::vector<float> x(shape.count), residual(shape.count), arrived(shape.count);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  std::vector<std::byte> message(codec->encoded_bytes(DType::float32, shape));
  encode_with_feedback(*codec, DType::float32, x.data(), residual.data(), shape, {.seed = 1}, message.data());
  codec->decode(DType::float32, message.data(), shape, arrived.data());

  float lost = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    lost = std::max(lost, std::fabs(x[i] - arrived[i] - residual[i]));
  std::cout << shape.count * sizeof(float) << " bytes as " << message.size()
            << "; what did not arrive waits in the residual, but for " << lost << '\n';
  return lost < 1e-6F && message.size() == 504 ? 0 : 1;
}
