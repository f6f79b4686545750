#include <algorithm>

#include "starling/codec/family/list.h"
#include "starling/codec/host_codec.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/copy.h"

namespace starling::codec::family {
namespace {

/// Sends the values unchanged, float64 too.
class Identity : public HostCodec {
 public:
  std::size_t encoded_bytes(DType dtype, CodecShape shape) const override {
    return whole_message(shape.count * (is_wide(dtype) ? sizeof(double) : sizeof(float)));
  }

 private:
  std::optional<DeviceCode> device_code(std::size_t) const override {
    return DeviceCode{.kind = DeviceCode::Kind::identity};
  }

  void host_encode(ConstBuffer in, std::size_t, const CodecKey&,
                   std::span<std::byte> message) const override {
    copy_bytes(message.data(), in);
    std::ranges::fill(message.subspan(in.bytes()), std::byte{0});
  }

  void host_decode(std::span<const std::byte> message, std::size_t, Buffer out) const override {
    copy_bytes(out.host_data(), message.data(), out.bytes());
  }

  void host_decode_add(std::span<const std::byte> message, std::size_t, double weight,
                       Buffer out) const override {
    const Term terms[] = {{out, 1}, {message.data(), weight}};
    combine(out, terms);
  }
};

}  // namespace

CodecFamily identity() {
  return {
      "identity", "the unchanged values", {}, [](const Parameters&) { return std::make_shared<Identity>(); }};
}

}  // namespace starling::codec::family
