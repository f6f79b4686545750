#include "starling/codec/error_feedback.h"

#include <fmt/format.h>

#include "starling/kernel/arithmetic.h"

namespace starling::codec {

void encode_with_feedback(const Codec& codec, ConstBuffer in, Buffer residual, std::size_t rows,
                          const CodecKey& key, Buffer message) {
  is_wide(in.dtype);
  if (residual.dtype != in.dtype || residual.count != in.count)
    throw InvalidArgument(fmt::format("codec {}: the residual of {} x {} has {} x {}", codec.canonical,
                                      in.count, name(in.dtype), residual.count, name(residual.dtype)));
  kernel::arithmetic_in(residual.memory).reduce(Reduction::sum, residual, in);
  codec.encode(residual, rows, key, message);
  codec.decode_add(message, rows, -1, residual);
}

}  // namespace starling::codec
