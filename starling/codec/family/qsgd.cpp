#include <cstring>
#include <vector>

#include "starling/codec/bits.h"
#include "starling/codec/chunked.h"
#include "starling/codec/family/list.h"
#include "starling/kernel/quantize.h"
#include "starling/kernel/update.h"

namespace starling::codec::family {
namespace {

/// |x| over its chunk's norm (the header), rounded at random to one of `levels` steps so that the mean is x.
class Qsgd : public ChunkedCodec {
 public:
  Qsgd(int levels, std::size_t chunk)
      : ChunkedCodec(chunk, sizeof(float), rules::level_bits(levels)),
        levels_(levels),
        bits_(rules::level_bits(levels)) {}

 private:
  std::optional<DeviceCode> device_code(std::size_t) const override {
    return DeviceCode{.kind = DeviceCode::Kind::qsgd, .chunk = chunk(), .levels = levels_};
  }

  void encode_chunk(const float* in, const ChunkPlace<std::byte>& place, std::uint64_t draws) const override {
    const auto [norm, scale] = rules::level_scale(sum_of_squares(DType::float32, in, place.count), levels_);
    std::memcpy(place.header, &norm, sizeof(norm));
    if (scale == 0) {  // all zeros, or too small to divide by; or NaN, which decodes to NaN
      std::memset(place.payload, 0, (place.count * bits_ + 7) / 8);
      return;
    }
    std::vector<std::uint32_t> random(place.count);
    random_words(draws, place.first, place.count, random.data());
    if (bits_ == 8) {
      auto* codes = reinterpret_cast<std::int8_t*>(place.payload);
      return quantize_levels(in, random.data(), place.count, scale, levels_, codes);
    }
    std::vector<std::int16_t> codes(place.count);
    quantize_levels(in, random.data(), place.count, scale, levels_, codes.data());
    pack_bits(codes, bits_, place.payload);
  }

  void decode_chunk(const ChunkPlace<const std::byte>& place, float* out) const override {
    float norm = 0;
    std::memcpy(&norm, place.header, sizeof(norm));
    const float step = norm / static_cast<float>(levels_);
    if (bits_ == 8) {
      const auto* codes = reinterpret_cast<const std::int8_t*>(place.payload);
      return dequantize_levels(codes, place.count, step, out, place.store);
    }
    std::vector<std::int16_t> codes(place.count);
    unpack_bits(place.payload, bits_, codes);
    dequantize_levels(codes.data(), place.count, step, out, place.store);
  }

  int levels_;
  unsigned bits_;
};

}  // namespace

CodecFamily qsgd() {
  return {"qsgd",
          "|x| over the norm of its chunk in `levels` levels, rounded at random: unbiased",
          {{"levels", "127", "steps from 0 to the norm; 127 take one byte, 7 half of one, 1 two bits"},
           chunk_parameter("512")},
          [](const Parameters& given) {
            return std::make_shared<Qsgd>(static_cast<int>(given.integer("levels", 1, 32767)),
                                          chunk_of(given));
          }};
}

}  // namespace starling::codec::family
