#pragma once

#include "starling/codec/codec.h"

namespace starling::codec {

/// Encodes in + residual and keeps in `residual` (initially zero) what the message left out: (in + residual)
/// - decoded. So nothing is lost, only delayed: over any number of calls, the decoded values plus the
/// residual equal the sum of the inputs, up to rounding. A NaN or an infinity stays in the residual.
void encode_with_feedback(const Codec& codec, ConstBuffer in, Buffer residual, std::size_t rows,
                          const CodecKey& key, Buffer message);

}  // namespace starling::codec

namespace starling {
using codec::encode_with_feedback;
}  // namespace starling
