#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "starling/base/buffer.h"
#include "starling/kernel/int8_runs.h"
#include "starling/kernel/term.h"

namespace starling::kernel {

/// Describes a codec to the kernels. codec/family/ documents the codecs and their messages.
struct DeviceCode {
  enum class Kind { identity, float16, bfloat16, uint8, sign, vote, qsgd, top_k, random_k };

  Kind kind;
  std::size_t chunk = 0;  // elements, of uint8, sign and qsgd
  int levels = 0;         // of qsgd
  std::size_t kept = 0;   // of top_k and random_k: how many elements are sent
  float factor = 1;       // of random_k: the factor of the sent values
};

/// Codecs and int8 messages in device memory: the same bits as on the host, enqueued on the calling thread's
/// stream. Buffers are in the device's memory, values are float32 or float64, and messages have the length
/// that the codec gives. Thread-safe.
class CodecKernels {
 public:
  virtual ~CodecKernels() = default;

  /// `draws`: the key of the random draws; see codec/draws.h.
  virtual void encode(const DeviceCode& code, ConstBuffer in, std::uint64_t draws, Buffer message) const = 0;
  /// Skips indices beyond `out`, which no encoder produces.
  virtual void decode(const DeviceCode& code, ConstBuffer message, Buffer out) const = 0;
  virtual void decode_add(const DeviceCode& code, ConstBuffer message, double weight, Buffer out) const = 0;

  // int8 messages; see kernel/int8_messages.h.

  virtual void encode_int8(const Int8Part& part, ConstBuffer in, Buffer message) const = 0;
  virtual void decode_int8(const Int8Part& part, ConstBuffer message, Buffer out) const = 0;
  virtual void combine_around_int8(const Int8Part& part, Buffer out, ConstBuffer x, Term own,
                                   std::span<const Term> others) const = 0;
};

/// The kernels for values in this kind of memory; null if codecs work in host memory.
const CodecKernels* codec_kernels_in(MemoryKind memory);

}  // namespace starling::kernel
