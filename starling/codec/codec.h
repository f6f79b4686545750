#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "starling/base/buffer.h"
#include "starling/base/types.h"

namespace starling::codec {

/// The key of an encoding's random numbers: equal keys give equal draws.
struct CodecKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  Step step = 0;
};

/// The shape of a parameter: its elements and the `rows` of its matrix, or 0 if it is not a matrix (PowerSGD
/// then uses a nearly square one).
struct CodecShape {
  std::size_t count = 0;
  std::size_t rows = 0;
};

/// Encodes a parameter's values as a message, usually a shorter one, and decodes messages. Codecs have no
/// state; thread-safe. The codecs of this library are HostCodecs.
///
/// Elements are float32 or float64 (others: InvalidArgument). float64 is converted to float32, except in
/// `identity`, so values beyond float32 become infinite. A chunked codec cuts chunks within one parameter, so
/// the result does not depend on other parameters in the message. Bits are the same on every instruction set.
///
/// Messages start at a multiple of 8 bytes and are multiples of 8 bytes long, so they can be concatenated;
/// parameters have the alignment of their elements. Blocks do not overlap.
///
/// NaN and infinite values never affect other blocks, and are not hidden either: `identity`, `float16`,
/// `bfloat16` and `random-k` keep them element by element, `top-k` sends them first (NaN before infinity);
/// the others decode their chunk (powersgd: the parameter) to NaN, or to infinities if `sign` meets an
/// infinity. `vote` cannot represent them: its callers check.
class Codec {
 public:
  virtual ~Codec() = default;

  std::string spec;       // as passed to make_codec()
  std::string canonical;  // with defaults filled in, for comparing

  /// The length of a message. It depends only on the shape and dtype, never on values, so all ranks' messages
  /// are equally long.
  virtual std::size_t encoded_bytes(DType dtype, CodecShape shape) const = 0;

  // `message` has type uint8 and at least encoded_bytes() elements; `rows` as in CodecShape. Values and
  // message may each be in any kind of memory: work on a device is enqueued on the calling thread's stream
  // (kernel/device.h). These functions throw InvalidArgument for arguments that do not fit.

  /// Writes every byte of the message.
  virtual void encode(ConstBuffer in, std::size_t rows, const CodecKey& key, Buffer message) const = 0;
  /// Overwrites out, using only the bytes of the message.
  virtual void decode(ConstBuffer message, std::size_t rows, Buffer out) const = 0;
  /// out += weight * decoded, rounded like combine().
  virtual void decode_add(ConstBuffer message, std::size_t rows, double weight, Buffer out) const = 0;
};

using CodecPtr = std::shared_ptr<const Codec>;

/// For codecs: whether elements are float64 rather than float32; throws InvalidArgument for other types.
bool is_wide(DType dtype);

/// For codecs: rounds up to a multiple of 8 bytes.
constexpr std::size_t whole_message(std::size_t bytes) {
  return (bytes + 7) / 8 * 8;
}

}  // namespace starling::codec

namespace starling {
using codec::Codec;
using codec::CodecKey;
using codec::CodecPtr;
using codec::CodecShape;
using codec::is_wide;
using codec::whole_message;
}  // namespace starling
