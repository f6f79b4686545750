#include <cstring>
#include <limits>

#include "starling/codec/chunked.h"
#include "starling/codec/family/list.h"
#include "starling/kernel/quantize.h"

namespace starling::codec::family {
namespace {

/// One bit per element; its size is the mean |x| of the chunk, which is the header.
class Sign : public ChunkedCodec {
 public:
  explicit Sign(std::size_t chunk) : ChunkedCodec(chunk, sizeof(float), 1) {}

 private:
  void encode_chunk(const float* in, const ChunkPlace<std::byte>& place, std::uint64_t) const override {
    const double sum = pack_signs(in, place.count, reinterpret_cast<std::uint8_t*>(place.payload));
    const double mean = sum / static_cast<double>(place.count);
    // One NaN for all, whichever it was.
    const float scale = mean == mean ? static_cast<float>(mean) : std::numeric_limits<float>::quiet_NaN();
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
