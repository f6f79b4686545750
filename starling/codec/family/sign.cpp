#include <cstring>

#include "starling/codec/chunked.h"
#include "starling/codec/family/list.h"
#include "starling/kernel/quantize.h"

namespace starling::codec::family {
namespace {

/// One bit per element; the magnitude is the mean |x| of the chunk (the header).
class Sign : public ChunkedCodec {
 public:
  explicit Sign(std::size_t chunk) : ChunkedCodec(chunk, sizeof(float), 1) {}

 private:
  std::optional<DeviceCode> device_code(std::size_t) const override {
    return DeviceCode{.kind = DeviceCode::Kind::sign, .chunk = chunk()};
  }

  void encode_chunk(const float* in, const ChunkPlace<std::byte>& place, std::uint64_t) const override {
    const double sum = pack_signs(in, place.count, reinterpret_cast<std::uint8_t*>(place.payload));
    const float scale = rules::sign_scale(sum, place.count);
    std::memcpy(place.header, &scale, sizeof(scale));
  }
  void decode_chunk(const ChunkPlace<const std::byte>& place, float* out) const override {
    float scale = 0;
    std::memcpy(&scale, place.header, sizeof(scale));
    unpack_signs(reinterpret_cast<const std::uint8_t*>(place.payload), place.count, scale, out, place.store);
  }
};

}  // namespace

CodecFamily sign() {
  return {"sign",
          "one bit per element, with the mean |x| of its chunk; needs error feedback",
          {chunk_parameter("2048")},
          [](const Parameters& given) { return std::make_shared<Sign>(chunk_of(given)); }};
}

}  // namespace starling::codec::family
