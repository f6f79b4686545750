#pragma once

#include <optional>
#include <span>
#include <vector>

#include "starling/codec/codec.h"
#include "starling/kernel/codec_kernels.h"

namespace starling::codec {

/// A codec that works in host memory. Values on a device are encoded by the device's kernels if they support
/// this codec, and otherwise through a copy in host memory, for which the thread waits. This class handles
/// that, and checks message lengths, for all codecs; they override the functions that start with `host_`.
class HostCodec : public Codec {
 public:
  void encode(ConstBuffer in, std::size_t rows, const CodecKey& key, Buffer message) const final;
  void decode(ConstBuffer message, std::size_t rows, Buffer out) const final;
  void decode_add(ConstBuffer message, std::size_t rows, double weight, Buffer out) const final;

 private:
  // Values are float32 or float64, messages have encoded_bytes() bytes. Not called if both are empty.

  virtual void host_encode(ConstBuffer in, std::size_t rows, const CodecKey& key,
                           std::span<std::byte> message) const = 0;
  virtual void host_decode(std::span<const std::byte> message, std::size_t rows, Buffer out) const = 0;
  /// The default implementation decodes all values into a copy first.
  virtual void host_decode_add(std::span<const std::byte> message, std::size_t rows, double weight,
                               Buffer out) const;

  /// The device code for encoding and decoding this many elements; empty if device kernels do not support it.
  virtual std::optional<kernel::DeviceCode> device_code(std::size_t /*count*/) const { return std::nullopt; }
};

// Helpers for host codecs.

/// Calls body with the elements, as float* or double*.
template <typename Void, typename Body>
void with_elements(const BasicBuffer<Void>& values, const Body& body) {
  if (is_wide(values.dtype))
    body(values.template host<double>());
  else
    body(values.template host<float>());
}

/// The values as float32: the values themselves, or converted into `scratch`.
const float* as_floats(ConstBuffer in, std::vector<float>& scratch);

/// out += weight * values, rounded like combine(). A float64 `out` needs `scratch`.
void add_floats(const float* values, double weight, Buffer out, std::vector<double>& scratch);

}  // namespace starling::codec

namespace starling {
using codec::HostCodec;
using codec::with_elements;
}  // namespace starling
