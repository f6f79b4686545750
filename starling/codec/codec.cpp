#include "starling/codec/codec.h"

#include <vector>

#include "starling/kernel/combine.h"

namespace starling::codec {

bool is_wide(DType dtype) {
  if (dtype != DType::float32 && dtype != DType::float64)
    throw InvalidArgument("codecs take float32 or float64, not " + name(dtype));
  return dtype == DType::float64;
}

void Codec::decode_add(DType dtype, const std::byte* in, CodecShape shape, double weight, void* out) const {
  // Of doubles, so that it is aligned for either dtype.
  std::vector<double> scratch(is_wide(dtype) ? shape.count : (shape.count + 1) / 2);
  decode(dtype, in, shape, scratch.data());
  const Term terms[] = {{out, 1}, {scratch.data(), weight}};
  combine(dtype, out, terms, shape.count);
}

}  // namespace starling::codec
