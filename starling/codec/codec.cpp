#include "starling/codec/codec.h"

namespace starling::codec {

bool is_wide(DType dtype) {
  if (dtype != DType::float32 && dtype != DType::float64)
    throw InvalidArgument("codecs take float32 or float64, not " + name(dtype));
  return dtype == DType::float64;
}

}  // namespace starling::codec
