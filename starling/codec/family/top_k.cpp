#include <fmt/format.h>

#include "starling/codec/family/list.h"
#include "starling/codec/sparse.h"
#include "starling/kernel/select.h"

namespace starling::codec::family {
namespace {

/// The k largest |x| of a parameter, ties to the lower index. The message: k indices, ascending, and k
/// values.
class TopK : public Codec {
 public:
  explicit TopK(double fraction) : fraction_(fraction) {}

  std::size_t encoded_bytes(DType dtype, CodecShape shape) const override {
    is_wide(dtype);
    if (shape.count > kMostElements)
      throw InvalidArgument(
          fmt::format("top-k: indices have 32 bits, {} elements are too many", shape.count));
    return kept(fraction_, shape.count) * (sizeof(std::uint32_t) + sizeof(float));
  }

  void encode(DType dtype, const void* in, CodecShape shape, const CodecKey&, std::byte* out) const override {
    std::vector<float> scratch;
    const float* values = as_floats(dtype, in, shape.count, scratch);
    const std::size_t k = encoded_bytes(dtype, shape) / 8;
    if (k == 0) return;
    auto* indices = reinterpret_cast<std::uint32_t*>(out);
    take_largest(values, shape.count, cut_of_largest(values, shape.count, k), indices,
                 reinterpret_cast<float*>(indices + k));
  }

  void decode(DType dtype, const std::byte* in, CodecShape shape, void* out) const override {
    const Entries entries(*this, dtype, in, shape);
    scatter(dtype, entries.values, entries.k, shape.count, out, entries);
  }

  void decode_add(DType dtype, const std::byte* in, CodecShape shape, double weight,
                  void* out) const override {
    const Entries entries(*this, dtype, in, shape);
    scatter_add(dtype, entries.values, entries.k, weight, out, entries);
  }

 private:
  static constexpr std::size_t kMostElements = 0xFFFFFFFF;

  struct Entries {
    Entries(const TopK& codec, DType dtype, const std::byte* in, CodecShape shape)
        : k(codec.encoded_bytes(dtype, shape) / 8),
          count(shape.count),
          indices(reinterpret_cast<const std::uint32_t*>(in)),
          values(reinterpret_cast<const float*>(indices + k)) {}

    std::size_t operator()(std::size_t j) const {
      if (indices[j] >= count)
        throw InvalidArgument(fmt::format("top-k: the message names element {} of {}", indices[j], count));
      return indices[j];
    }

    std::size_t k;
    std::size_t count;
    const std::uint32_t* indices;
    const float* values;
  };

  double fraction_;
};

}  // namespace

CodecFamily top_k() {
  return {"top-k",
          "the largest |x| of each parameter, with their indices; needs error feedback",
          {fraction_parameter()},
          [](const Parameters& given) { return std::make_shared<TopK>(fraction_of(given)); }};
}

}  // namespace starling::codec::family
