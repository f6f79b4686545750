#pragma once

#include "starling/codec/codec.h"

namespace starling::codec {

/// Encodes in + residual and keeps in `residual`, which starts as zeros, what the message left out: (in +
/// residual) - decoded. So nothing is lost, only late: over any number of calls, what was decoded plus the
/// residual is the sum of the inputs, up to rounding. A NaN or an infinity stays in the residual.
void encode_with_feedback(const Codec& codec, DType dtype, const void* in, void* residual, CodecShape shape,
                          const CodecKey& key, std::byte* out);

inline void encode_with_feedback(const Codec& codec, ConstBuffer in, Buffer residual, std::size_t rows,
                                 const CodecKey& key, Buffer message) {
  encode_with_feedback(codec, in.dtype, in.host_data(), residual.host_data(), {in.count, rows}, key,
                       message.host_bytes());
}

}  // namespace starling::codec

namespace starling {
using codec::encode_with_feedback;
}  // namespace starling
