#include <algorithm>
#include <vector>

#include "starling/codec/family/list.h"
#include "starling/codec/host_codec.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/quantize.h"

namespace starling::codec::family {
namespace {

/// One bit per element and no header: decodes to -1 for values below zero, else to 1. Encoding the mean of
/// votes gives the majority; a tie counts as 1, like zero.
class Vote final : public HostCodec {
 public:
  std::size_t encoded_bytes(DType dtype, CodecShape shape) const override {
    is_wide(dtype);
    return whole_message((shape.count + 7) / 8);
  }

 private:
  std::optional<DeviceCode> device_code(std::size_t) const override {
    return DeviceCode{.kind = DeviceCode::Kind::vote};
  }

  void host_encode(ConstBuffer in, std::size_t, const CodecKey&,
                   std::span<std::byte> message) const override {
    std::vector<float> scratch;
    std::ranges::fill(message, std::byte{0});
    pack_signs(as_floats(in, scratch), in.count, reinterpret_cast<std::uint8_t*>(message.data()));
  }

  void host_decode(std::span<const std::byte> message, std::size_t, Buffer out) const override {
    const auto* bits = reinterpret_cast<const std::uint8_t*>(message.data());
    if (!is_wide(out.dtype)) return unpack_signs(bits, out.count, 1, out.host<float>());
    std::vector<float> scratch(out.count);
    unpack_signs(bits, out.count, 1, scratch.data());
    convert({DType::float32, scratch.data(), out.count}, out);
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
