#include "starling/codec/host_codec.h"

#include <fmt/format.h>

#include "starling/codec/draws.h"
#include "starling/kernel/combine.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/staged.h"

namespace starling::codec {
namespace {

// The part of `message` that the values' message occupies.
template <typename Void>
BasicBuffer<Void> message_of(const Codec& codec, const BasicBuffer<Void>& message, const ConstBuffer& values,
                             std::size_t rows) {
  is_wide(values.dtype);
  const std::size_t bytes = codec.encoded_bytes(values.dtype, {values.count, rows});
  if (message.dtype != DType::uint8 || message.count < bytes)
    throw InvalidArgument(fmt::format("codec {}: the message of {} x {} is {} x uint8, not {} x {}",
                                      codec.canonical, values.count, name(values.dtype), bytes, message.count,
                                      name(message.dtype)));
  return message.part(0, bytes);
}

template <typename Void>
auto bytes_of(const kernel::Staged<Void>& message) {
  return std::span(message.buffer().host_bytes(), message.buffer().count);
}

}  // namespace

void HostCodec::encode(ConstBuffer in, std::size_t rows, const CodecKey& key, Buffer message) const {
  const Buffer own = message_of(*this, message, in, rows);
  if (in.count == 0 && own.count == 0) return;
  const auto* kernels = codec_kernels_in(in.memory);
  if (const auto code = device_code(in.count); kernels != nullptr && code) {
    const kernel::Staged bytes(own, in.memory, false);
    kernels->encode(*code, in, draw_key(key), bytes.buffer());
    return bytes.write_back();
  }
  const kernel::Staged values(in);
  const kernel::Staged bytes(own, MemoryKind::host, false);
  host_encode(values.buffer(), rows, key, bytes_of(bytes));
  bytes.write_back();
}

void HostCodec::decode(ConstBuffer message, std::size_t rows, Buffer out) const {
  const ConstBuffer own = message_of(*this, message, out, rows);
  if (out.count == 0 && own.count == 0) return;
  const auto* kernels = codec_kernels_in(out.memory);
  if (const auto code = device_code(out.count); kernels != nullptr && code)
    return kernels->decode(*code, kernel::Staged(own, out.memory).buffer(), out);
  const kernel::Staged values(out, MemoryKind::host, false);
  host_decode(bytes_of(kernel::Staged(own)), rows, values.buffer());
  values.write_back();
}

void HostCodec::decode_add(ConstBuffer message, std::size_t rows, double weight, Buffer out) const {
  const ConstBuffer own = message_of(*this, message, out, rows);
  if (out.count == 0 && own.count == 0) return;
  const auto* kernels = codec_kernels_in(out.memory);
  if (const auto code = device_code(out.count); kernels != nullptr && code)
    return kernels->decode_add(*code, kernel::Staged(own, out.memory).buffer(), weight, out);
  const kernel::Staged values(out);
  host_decode_add(bytes_of(kernel::Staged(own)), rows, weight, values.buffer());
  values.write_back();
}

void HostCodec::host_decode_add(std::span<const std::byte> message, std::size_t rows, double weight,
                                Buffer out) const {
  // A vector of doubles, so that it is aligned for either type.
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
