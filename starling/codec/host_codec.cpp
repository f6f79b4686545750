#include "starling/codec/host_codec.h"

#include <fmt/format.h>

#include "starling/kernel/combine.h"
#include "starling/kernel/convert.h"

namespace starling::codec {
namespace {

// The bytes of the values' message.
template <typename Void>
auto message_of(const Codec& codec, const BasicBuffer<Void>& message, const ConstBuffer& values,
                std::size_t rows) {
  is_wide(values.dtype);
  static_cast<void>(values.host_data());
  const std::size_t bytes = codec.encoded_bytes(values.dtype, {values.count, rows});
  if (message.dtype != DType::uint8 || message.count < bytes)
    throw InvalidArgument(fmt::format("codec {}: the message of {} x {} is {} x uint8, not {} x {}",
                                      codec.canonical, values.count, name(values.dtype), bytes, message.count,
                                      name(message.dtype)));
  return std::span(message.host_bytes(), bytes);
}

}  // namespace

void HostCodec::encode(ConstBuffer in, std::size_t rows, const CodecKey& key, Buffer message) const {
  const std::span<std::byte> bytes = message_of(*this, message, in, rows);
  if (in.count > 0 || !bytes.empty()) host_encode(in, rows, key, bytes);
}

void HostCodec::decode(ConstBuffer message, std::size_t rows, Buffer out) const {
  const std::span<const std::byte> bytes = message_of(*this, message, out, rows);
  if (out.count > 0 || !bytes.empty()) host_decode(bytes, rows, out);
}

void HostCodec::decode_add(ConstBuffer message, std::size_t rows, double weight, Buffer out) const {
  const std::span<const std::byte> bytes = message_of(*this, message, out, rows);
  if (out.count > 0 || !bytes.empty()) host_decode_add(bytes, rows, weight, out);
}

void HostCodec::host_decode_add(std::span<const std::byte> message, std::size_t rows, double weight,
                                Buffer out) const {
  // Of doubles, so that it is aligned for either type.
  std::vector<double> scratch(is_wide(out.dtype) ? out.count : (out.count + 1) / 2);
  const Buffer decoded = out.at<void>(scratch.data());
  host_decode(message, rows, decoded);
  const Term terms[] = {{out, 1}, {decoded, weight}};
  combine(out, terms);
}

const float* as_floats(ConstBuffer in, std::vector<float>& scratch) {
  if (!is_wide(in.dtype)) return in.host<float>();
  scratch.resize(in.count);
  convert(in, {DType::float32, scratch.data(), in.count});
  return scratch.data();
}

void add_floats(const float* values, double weight, Buffer out, std::vector<double>& scratch) {
  ConstBuffer added(DType::float32, values, out.count);
  if (is_wide(out.dtype)) {
    scratch.resize(out.count);
    convert(added, out.at<void>(scratch.data()));
    added = out.at<const void>(scratch.data());
  }
  const Term terms[] = {{out, 1}, {added, weight}};
  combine(out, terms, Store::cached);
}

}  // namespace starling::codec
