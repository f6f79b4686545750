#include <cstring>

#include "starling/codec/chunked.h"
#include "starling/codec/family/list.h"
#include "starling/kernel/quantize.h"

namespace starling::codec::family {
namespace {

/// 256 equal steps from each chunk's least to its greatest value, which are the header.
class Uint8 : public ChunkedCodec {
 public:
  explicit Uint8(std::size_t chunk) : ChunkedCodec(chunk, sizeof(ValueRange), 8) {}

 private:
  std::optional<DeviceCode> device_code(std::size_t) const override {
    return DeviceCode{.kind = DeviceCode::Kind::uint8, .chunk = chunk()};
  }

  void encode_chunk(const float* in, const ChunkPlace<std::byte>& place, std::uint64_t) const override {
    const ValueRange range = value_range(in, place.count);
    std::memcpy(place.header, &range, sizeof(range));
    quantize_uint8(in, place.count, range, reinterpret_cast<std::uint8_t*>(place.payload));
  }
  void decode_chunk(const ChunkPlace<const std::byte>& place, float* out) const override {
    ValueRange range;
    std::memcpy(&range, place.header, sizeof(range));
    dequantize_uint8(reinterpret_cast<const std::uint8_t*>(place.payload), place.count, range, out,
                     place.store);
  }
};

}  // namespace

CodecFamily uint8() {
  return {"uint8",
          "one byte per element, between the least and the greatest of its chunk",
          {chunk_parameter("2048")},
          [](const Parameters& given) { return std::make_shared<Uint8>(chunk_of(given)); }};
}

}  // namespace starling::codec::family
