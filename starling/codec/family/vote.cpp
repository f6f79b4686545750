#include <cstring>
#include <vector>

#include "starling/codec/family/list.h"
#include "starling/codec/sparse.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/quantize.h"

namespace starling::codec::family {
namespace {

/// A bit per element and nothing else: decodes to 1, or to -1 for what was below zero. The mean of votes
/// encoded again is the majority; a tie counts as 1, as zero does.
class Vote final : public Codec {
 public:
  std::size_t encoded_bytes(DType dtype, CodecShape shape) const override {
    is_wide(dtype);
    return whole_message((shape.count + 7) / 8);
  }

  void encode(DType dtype, const void* in, CodecShape shape, const CodecKey&, std::byte* out) const override {
    std::vector<float> scratch;
    std::memset(out, 0, encoded_bytes(dtype, shape));
    pack_signs(as_floats(dtype, in, shape.count, scratch), shape.count, reinterpret_cast<std::uint8_t*>(out));
  }

  void decode(DType dtype, const std::byte* in, CodecShape shape, void* out) const override {
    const auto* bits = reinterpret_cast<const std::uint8_t*>(in);
    if (!is_wide(dtype)) {
      unpack_signs(bits, shape.count, 1, static_cast<float*>(out));
      return;
    }
    std::vector<float> scratch(shape.count);
    unpack_signs(bits, shape.count, 1, scratch.data());
    convert(DType::float32, scratch.data(), dtype, out, shape.count);
  }
};

}  // namespace

CodecFamily vote() {
  return {"vote",
          "one bit per element and no scale: decodes to 1 or -1, for majority votes",
          {},
          [](const Parameters&) { return std::make_shared<Vote>(); }};
}

}  // namespace starling::codec::family
