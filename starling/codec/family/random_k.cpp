#include <fmt/format.h>

#include "starling/base/permutation.h"
#include "starling/codec/draws.h"
#include "starling/codec/family/list.h"
#include "starling/codec/sparse.h"

namespace starling::codec::family {
namespace {

/// Sends k elements that the key chooses. The message holds 8 bytes from which the decoder draws the same
/// indices, and k values.
class RandomK : public HostCodec {
 public:
  RandomK(double fraction, bool unbiased) : fraction_(fraction), unbiased_(unbiased) {}

  std::size_t encoded_bytes(DType dtype, CodecShape shape) const override {
    is_wide(dtype);
    if (shape.count > kMostElements)
      throw InvalidArgument(
          fmt::format("random-k: {} elements are too many, {} would do", shape.count, kMostElements));
    if (shape.count == 0) return 0;
    return whole_message(sizeof(std::uint64_t) + kept(fraction_, shape.count) * sizeof(float));
  }

 private:
  std::optional<DeviceCode> device_code(std::size_t count) const override {
    return DeviceCode{
        .kind = DeviceCode::Kind::random_k, .kept = kept(fraction_, count), .factor = factor(count)};
  }

  // The factor of the sent values.
  float factor(std::size_t count) const {
    if (!unbiased_) return 1;
    return static_cast<float>(static_cast<double>(count) / static_cast<double>(kept(fraction_, count)));
  }

  void host_encode(ConstBuffer in, std::size_t, const CodecKey& key,
                   std::span<std::byte> message) const override {
    std::memset(message.data() + message.size() - 8, 0, 8);
    const std::uint64_t draws = draw_key(key);
    std::memcpy(message.data(), &draws, sizeof(draws));
    const Choice choice(*this, message, in.count);
    auto* values = reinterpret_cast<float*>(message.data() + sizeof(draws));
    const float scale = factor(in.count);
    with_elements(in, [&](const auto* x) {
      for (std::size_t j = 0; j < choice.k; ++j) values[j] = scale * static_cast<float>(x[choice(j)]);
    });
  }

  void host_decode(std::span<const std::byte> message, std::size_t, Buffer out) const override {
    const Choice choice(*this, message, out.count);
    scatter(choice.values, choice.k, out, choice);
  }

  void host_decode_add(std::span<const std::byte> message, std::size_t, double weight,
                       Buffer out) const override {
    const Choice choice(*this, message, out.count);
    scatter_add(choice.values, choice.k, weight, out, choice);
  }

  static constexpr std::size_t kMostElements = 0x7FFFFFFF;

  struct Choice {
    Choice(const RandomK& codec, std::span<const std::byte> message, std::size_t count)
        : k(kept(codec.fraction_, count)),
          values(reinterpret_cast<const float*>(message.data() + sizeof(std::uint64_t))),
          permutation(static_cast<Rank>(count), draws_of(message), 0) {}

    std::size_t operator()(std::size_t j) const {
      return static_cast<std::size_t>(permutation(static_cast<Rank>(j)));
    }
    static std::uint64_t draws_of(std::span<const std::byte> message) {
      std::uint64_t draws = 0;
      std::memcpy(&draws, message.data(), sizeof(draws));
      return draws;
    }

    std::size_t k;
    const float* values;
    Permutation permutation;
  };

  double fraction_;
  bool unbiased_;
};

}  // namespace

CodecFamily random_k() {
  return {"random-k",
          "elements chosen at random, without their indices",
          {fraction_parameter(),
           {"unbiased", "false", "whether values are scaled by count / k, so that the mean is x"}},
          [](const Parameters& given) {
            return std::make_shared<RandomK>(fraction_of(given), given.yes("unbiased"));
          }};
}

}  // namespace starling::codec::family
