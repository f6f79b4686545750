#include "starling/codec/chunked.h"
#include "starling/codec/family/list.h"
#include "starling/kernel/convert.h"

namespace starling::codec::family {
namespace {

/// Every element rounded to nearest even, in 16 bits.
class HalfPrecision : public ChunkedCodec {
 public:
  explicit HalfPrecision(DType message) : ChunkedCodec(kPiece, 0, 16), message_(message) {}

 private:
  // Results do not depend on it; pieces and their scratch stay in the first cache.
  static constexpr std::size_t kPiece = 4096;

  void encode_chunk(const float* in, const ChunkPlace<std::byte>& place, std::uint64_t) const override {
    convert(DType::float32, in, message_, place.payload, place.count, place.store);
  }
  void decode_chunk(const ChunkPlace<const std::byte>& place, float* out) const override {
    convert(message_, place.payload, DType::float32, out, place.count, place.store);
  }

  DType message_;
};

}  // namespace

CodecFamily float16() {
  return {"float16",
          "IEEE half precision: 11 bits of precision, up to 65504",
          {},
          [](const Parameters&) { return std::make_shared<HalfPrecision>(DType::float16); },
          {"fp16"}};
}

CodecFamily bfloat16() {
  return {"bfloat16",
          "float32's range, 8 bits of precision",
          {},
          [](const Parameters&) { return std::make_shared<HalfPrecision>(DType::bfloat16); },
          {"bf16"}};
}

}  // namespace starling::codec::family
