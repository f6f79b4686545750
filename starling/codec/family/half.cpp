#include "starling/codec/chunked.h"
#include "starling/codec/family/list.h"
#include "starling/codec/wire_format.h"

namespace starling::codec::family {
namespace {

/// Rounds every element to nearest even, to 16 bits: the wire format of the same name, also for float64 and
/// with a weight.
class HalfPrecision : public ChunkedCodec {
 public:
  explicit HalfPrecision(const std::string& format)
      : ChunkedCodec(kPiece, 0, 16), format_(make_wire_format(format)) {}

 private:
  std::optional<DeviceCode> device_code(std::size_t) const override {
    return DeviceCode{format_->dtype() == DType::float16 ? DeviceCode::Kind::float16
                                                         : DeviceCode::Kind::bfloat16};
  }

  // Results do not depend on it; pieces and their scratch memory fit the L1 cache.
  static constexpr std::size_t kPiece = 4096;

  void encode_chunk(const float* in, const ChunkPlace<std::byte>& place, std::uint64_t) const override {
    format_->encode({DType::float32, in, place.count}, {format_->dtype(), place.payload, place.count},
                    place.store);
  }
  void decode_chunk(const ChunkPlace<const std::byte>& place, float* out) const override {
    format_->decode({format_->dtype(), place.payload, place.count}, {DType::float32, out, place.count},
                    place.store);
  }

  WireFormatPtr format_;
};

CodecFamily half_precision(const std::string& name, const std::string& summary) {
  return {name,
          summary,
          {},
          [name](const Parameters&) { return std::make_shared<HalfPrecision>(name); },
          wire_format_aliases(name)};
}

}  // namespace

CodecFamily float16() {
  return half_precision("float16", "IEEE half precision: 11 bits of precision, up to 65504");
}

CodecFamily bfloat16() {
  return half_precision("bfloat16", "float32's range, 8 bits of precision");
}

}  // namespace starling::codec::family
