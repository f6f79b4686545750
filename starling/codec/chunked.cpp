#include "starling/codec/chunked.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "starling/codec/draws.h"
#include "starling/kernel/convert.h"
#include "starling/kernel/quantize.h"

namespace starling::codec {

std::size_t ChunkedCodec::header_total(std::size_t count) const {
  return whole_message((count + chunk_ - 1) / chunk_ * header_bytes_);
}

std::size_t ChunkedCodec::encoded_bytes(DType dtype, CodecShape shape) const {
  is_wide(dtype);
  return header_total(shape.count) + whole_message((shape.count * bits_ + 7) / 8);
}

// Calls body(place) for every chunk. A large parameter bypasses the cache if body passes place.store on.
template <typename Byte, typename Body>
void ChunkedCodec::for_chunks(std::size_t count, Byte* message, const Body& body) const {
  const Store store =
      count * (8 * sizeof(float) + bits_) / 8 >= kStreamingBytes ? Store::streaming : Store::cached;
  Byte* payload = message + header_total(count);
  for (std::size_t first = 0; first < count; first += chunk_)
    body(ChunkPlace<Byte>{first, std::min(chunk_, count - first), message + first / chunk_ * header_bytes_,
                          payload + first * bits_ / 8, store});
  if (store == Store::streaming) finish_streaming();
}

void ChunkedCodec::host_encode(ConstBuffer in, std::size_t, const CodecKey& key,
                               std::span<std::byte> message) const {
  // Clears the padding of both parts.
  const std::size_t payload = header_total(in.count);
  std::memset(message.data() + payload - 8 * (payload > 0), 0, 8 * (payload > 0));
  std::memset(message.data() + message.size() - 8, 0, 8);
  const std::uint64_t draws = draw_key(key);
  std::vector<float> scratch;
  for_chunks(in.count, message.data(), [&](const ChunkPlace<std::byte>& place) {
    encode_chunk(as_floats(in.part(place.first, place.count), scratch), place, draws);
  });
}

void ChunkedCodec::host_decode(std::span<const std::byte> message, std::size_t, Buffer out) const {
  const bool wide = is_wide(out.dtype);
  std::vector<float> scratch(wide ? std::min(chunk_, out.count) : 0);
  for_chunks(out.count, message.data(), [&](ChunkPlace<const std::byte> place) {
    const Buffer to = out.part(place.first, place.count);
    if (!wide) return decode_chunk(place, to.host<float>());
    const Store store = std::exchange(place.store, Store::cached);
    decode_chunk(place, scratch.data());
    convert({DType::float32, scratch.data(), place.count}, to, store);
  });
}

void ChunkedCodec::host_decode_add(std::span<const std::byte> message, std::size_t, double weight,
                                   Buffer out) const {
  std::vector<float> decoded(std::min(chunk_, out.count));
  std::vector<double> scratch;
  for_chunks(out.count, message.data(), [&](ChunkPlace<const std::byte> place) {
    place.store = Store::cached;
    decode_chunk(place, decoded.data());
    add_floats(decoded.data(), weight, out.part(place.first, place.count), scratch);
  });
}

Parameter chunk_parameter(const std::string& fallback) {
  return {"chunk", fallback, "elements that are scaled together, a multiple of 64"};
}

std::size_t chunk_of(const Parameters& given) {
  const auto chunk = given.integer("chunk", 64, 1 << 20);
  if (chunk % 64 != 0)
    throw InvalidArgument(fmt::format("{}: chunk = {} must be a multiple of 64 (e.g. {} or {})",
                                      given.owner(), chunk, chunk / 64 * 64, (chunk / 64 + 1) * 64));
  return static_cast<std::size_t>(chunk);
}

}  // namespace starling::codec
