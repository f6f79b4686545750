#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "starling/base/buffer.h"
#include "starling/kernel/term.h"

namespace starling::kernel {

/// A codec as kernels follow it. What its messages are is said with the codec, in codec/family/.
struct DeviceCode {
  enum class Kind { identity, float16, bfloat16, uint8, sign, vote, qsgd, top_k, random_k };

  Kind kind;
  std::size_t chunk = 0;  // of uint8, sign and qsgd
  int levels = 0;         // of qsgd
  std::size_t kept = 0;   // of top_k and random_k: how many elements are sent
  float factor = 1;       // of random_k: of the values that are sent
};

/// What codecs and messages of int8 do in device memory: the host's bits, enqueued on the calling thread's
/// stream. Buffers lie in the memory of its device, values are float32 or float64, and messages are as long
/// as the codec says. Used by any thread.
class CodecKernels {
 public:
  virtual ~CodecKernels() = default;

  /// `draws` is the key of random draws, see codec/draws.h.
  virtual void encode(const DeviceCode& code, ConstBuffer in, std::uint64_t draws, Buffer message) const = 0;
  /// Indices beyond `out`, which no encoder makes, are left out.
  virtual void decode(const DeviceCode& code, ConstBuffer message, Buffer out) const = 0;
  virtual void decode_add(const DeviceCode& code, ConstBuffer message, double weight, Buffer out) const = 0;

  // Messages of int8, see codec/wire_format.h; values are float32. `ends`: where the parameters of the block
  // end, the last one at its own end.

  virtual void encode_int8(std::span<const std::size_t> ends, ConstBuffer in, Buffer message) const = 0;
  virtual void decode_int8(std::span<const std::size_t> ends, ConstBuffer message, Buffer out) const = 0;
  /// As Arithmetic::combine_around(), of messages of int8.
  virtual void combine_around_int8(std::span<const std::size_t> ends, Buffer out, ConstBuffer x, Term own,
                                   std::span<const Term> others) const = 0;
};

/// Elements that messages of int8 scale together, at most.
inline constexpr std::size_t kInt8Run = 512;

/// The kernels for values in this memory; null where codecs work on the host.
const CodecKernels* codec_kernels_in(MemoryKind memory);

}  // namespace starling::kernel
