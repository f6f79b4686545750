#include "starling/method/family/vote.h"

#include <cstring>
#include <vector>

#include "starling/codec/sparse.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/quantize.h"

namespace starling::method::family {
namespace {

class Vote final : public Codec {
 public:
  std::size_t encoded_bytes(DType, CodecShape shape) const override { return (shape.count + 63) / 64 * 8; }

  void encode(DType dtype, const void* in, CodecShape shape, const CodecKey&, std::byte* out) const override {
    std::vector<float> scratch;
    std::memset(out, 0, encoded_bytes(dtype, shape));
    pack_signs(as_floats(dtype, in, shape.count, scratch), shape.count, reinterpret_cast<std::uint8_t*>(out));
  }

  void decode(DType dtype, const std::byte* in, CodecShape shape, void* out) const override {
    const auto* bits = reinterpret_cast<const std::uint8_t*>(in);
    if (dtype == DType::float32) {
      unpack_signs(bits, shape.count, 1, static_cast<float*>(out));
      return;
    }
    std::vector<float> scratch(shape.count);
    unpack_signs(bits, shape.count, 1, scratch.data());
    convert(DType::float32, scratch.data(), dtype, out, shape.count);
  }
};

}  // namespace

CodecPtr make_vote() {
  auto made = std::make_shared<Vote>();
  made->spec = "vote";
  return made;
}

}  // namespace starling::method::family
