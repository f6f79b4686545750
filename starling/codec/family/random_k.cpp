#include <fmt/format.h>

#include "starling/base/permutation.h"
#include "starling/codec/draws.h"
#include "starling/codec/family/list.h"
#include "starling/codec/sparse.h"

namespace starling::codec::family {
namespace {

/// k elements that the key chooses. The message: 8 bytes from which the decoder draws the same indices, and
/// k values.
class RandomK : public Codec {
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

  void encode(DType dtype, const void* in, CodecShape shape, const CodecKey& key,
              std::byte* out) const override {
    const bool wide = is_wide(dtype);
    const std::size_t bytes = encoded_bytes(dtype, shape);
    if (bytes == 0) return;
    std::memset(out + bytes - 8, 0, 8);
    const std::uint64_t draws = draw_key(key);
    std::memcpy(out, &draws, sizeof(draws));
    const Choice choice(*this, out, shape);
    auto* values = reinterpret_cast<float*>(out + sizeof(draws));
    const float factor =
        unbiased_ ? static_cast<float>(static_cast<double>(shape.count) / static_cast<double>(choice.k)) : 1;
    for (std::size_t j = 0; j < choice.k; ++j) {
      const std::size_t i = choice(j);
      values[j] = factor * (wide ? static_cast<float>(static_cast<const double*>(in)[i])
                                 : static_cast<const float*>(in)[i]);
    }
  }

  void decode(DType dtype, const std::byte* in, CodecShape shape, void* out) const override {
    if (encoded_bytes(dtype, shape) == 0) return;
    const Choice choice(*this, in, shape);
    scatter(dtype, choice.values, choice.k, shape.count, out, choice);
  }

  void decode_add(DType dtype, const std::byte* in, CodecShape shape, double weight,
                  void* out) const override {
    if (encoded_bytes(dtype, shape) == 0) return;
    const Choice choice(*this, in, shape);
    scatter_add(dtype, choice.values, choice.k, weight, out, choice);
  }

 private:
  static constexpr std::size_t kMostElements = 0x7FFFFFFF;

  struct Choice {
    Choice(const RandomK& codec, const std::byte* message, CodecShape shape)
        : k(kept(codec.fraction_, shape.count)),
          values(reinterpret_cast<const float*>(message + sizeof(std::uint64_t))),
          permutation(static_cast<Rank>(shape.count), draws_of(message), 0) {}

    std::size_t operator()(std::size_t j) const {
      return static_cast<std::size_t>(permutation(static_cast<Rank>(j)));
    }
    static std::uint64_t draws_of(const std::byte* message) {
      std::uint64_t draws = 0;
      std::memcpy(&draws, message, sizeof(draws));
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
