#include "starling/codec/family/list.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/copy.h"

namespace starling::codec::family {
namespace {

/// The values themselves, float64 too.
class Identity : public Codec {
 public:
  std::size_t encoded_bytes(DType dtype, CodecShape shape) const override {
    return whole_message(bytes(dtype, shape));
  }

  void encode(DType dtype, const void* in, CodecShape shape, const CodecKey&, std::byte* out) const override {
    const std::size_t used = bytes(dtype, shape);
    copy_bytes(out, in, used);
    for (std::size_t i = used; i < whole_message(used); ++i) out[i] = std::byte{0};
  }

  void decode(DType dtype, const std::byte* in, CodecShape shape, void* out) const override {
    copy_bytes(out, in, bytes(dtype, shape));
  }

  void decode_add(DType dtype, const std::byte* in, CodecShape shape, double weight,
                  void* out) const override {
    is_wide(dtype);
    const Term terms[] = {{out, 1}, {in, weight}};
    combine(dtype, out, terms, shape.count);
  }

 private:
  static std::size_t bytes(DType dtype, CodecShape shape) {
    return shape.count * (is_wide(dtype) ? sizeof(double) : sizeof(float));
  }
};

}  // namespace

CodecFamily identity() {
  return {"identity", "the values as they are", {}, [](const Parameters&) {
            return std::make_shared<Identity>();
          }};
}

}  // namespace starling::codec::family
