#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "starling/base/buffer.h"
#include "starling/base/types.h"

namespace starling::codec {

/// What an encoding draws its random numbers from: equal keys, equal draws.
struct CodecKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  Step step = 0;
};

/// A parameter as codecs see it: `rows` of its matrix, 0 where it has none (PowerSGD then takes a near-square
/// one).
struct CodecShape {
  std::size_t count = 0;
  std::size_t rows = 0;
};

/// Makes a message of a parameter's values, shorter than they are, and values of a message. Codecs have no
/// state and may be used by many threads at once. Those of this library are HostCodecs.
///
/// Elements are float32 or float64 (others: InvalidArgument). float64 goes through float32, except in
/// `identity`, so what is beyond float32 counts as infinite. A codec that works in chunks cuts them inside
/// the parameter, so the result does not depend on what else travels with it. Bits are the same on every
/// instruction set.
///
/// Messages begin at a multiple of 8 bytes and are multiples of 8 bytes long, so that they can follow one
/// another; parameters are aligned as their elements are. Blocks do not overlap.
///
/// NaN and infinite values never reach outside the blocks, and are not hidden either: `identity`, `float16`,
/// `bfloat16` and `random-k` keep them element by element, `top-k` sends them first (NaN before infinity);
/// with the others the chunk they lie in (powersgd: the parameter) decodes to NaN, or to infinities where
/// `sign` meets an infinity. `vote` has no room for them: its callers check.
class Codec {
 public:
  virtual ~Codec() = default;

  std::string spec;       // as make_codec() was asked for it
  std::string canonical;  // the same with defaults filled in, for comparing

  /// Depends on the shape and dtype alone, never on values: messages of all ranks are equally long.
  virtual std::size_t encoded_bytes(DType dtype, CodecShape shape) const = 0;

  // `message` is of uint8 and has encoded_bytes() elements or more; `rows` as in CodecShape. Values and
  // message may each lie in any memory: what happens on a device is enqueued on the calling thread's stream
  // (kernel/device.h). Throw InvalidArgument for what does not fit.

  /// Writes every byte of the message.
  virtual void encode(ConstBuffer in, std::size_t rows, const CodecKey& key, Buffer message) const = 0;
  /// Overwrites out. Everything that is needed is in the bytes.
  virtual void decode(ConstBuffer message, std::size_t rows, Buffer out) const = 0;
  /// out += weight * decoded, rounded as combine() rounds it.
  virtual void decode_add(ConstBuffer message, std::size_t rows, double weight, Buffer out) const = 0;
};

using CodecPtr = std::shared_ptr<const Codec>;

/// For codecs: whether elements are float64 rather than float32; throws InvalidArgument for what is neither.
bool is_wide(DType dtype);

/// For codecs: the next multiple of 8, as messages are long.
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
