#include "starling/codec/error_feedback.h"

#include "starling/kernel/reduce.h"

namespace starling::codec {

void encode_with_feedback(const Codec& codec, DType dtype, const void* in, void* residual, CodecShape shape,
                          const CodecKey& key, std::byte* out) {
  is_wide(dtype);
  reduce(Reduction::sum, dtype, residual, in, shape.count);
  codec.encode(dtype, residual, shape, key, out);
  codec.decode_add(dtype, out, shape, -1, residual);
}

}  // namespace starling::codec
