#include "starling/codec/chunked.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <vector>

#include "starling/codec/draws.h"
#include "starling/kernel/combine.h"
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

// Calls body(place) for every chunk; a large parameter goes past the cache, where the caller does not change
// that.
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

void ChunkedCodec::encode(DType dtype, const void* in, CodecShape shape, const CodecKey& key,
                          std::byte* out) const {
  const bool wide = is_wide(dtype);
  if (shape.count == 0) return;
  // What rounding up to whole messages adds.
  const std::size_t payload = header_total(shape.count);
  std::memset(out + payload - 8 * (payload > 0), 0, 8 * (payload > 0));
  const std::size_t bytes = whole_message((shape.count * bits_ + 7) / 8);
  std::memset(out + payload + bytes - 8, 0, 8);
  const std::uint64_t draws = draw_key(key);
  std::vector<float> scratch(wide ? std::min(chunk_, shape.count) : 0);
  for_chunks(shape.count, out, [&](const ChunkPlace<std::byte>& place) {
    if (!wide) return encode_chunk(static_cast<const float*>(in) + place.first, place, draws);
    convert(DType::float64, static_cast<const double*>(in) + place.first, DType::float32, scratch.data(),
            place.count);
    encode_chunk(scratch.data(), place, draws);
  });
}

void ChunkedCodec::decode(DType dtype, const std::byte* in, CodecShape shape, void* out) const {
  const bool wide = is_wide(dtype);
  std::vector<float> scratch(wide ? std::min(chunk_, shape.count) : 0);
  for_chunks(shape.count, in, [&](ChunkPlace<const std::byte> place) {
    if (!wide) return decode_chunk(place, static_cast<float*>(out) + place.first);
    const Store store = place.store;
    place.store = Store::cached;
    decode_chunk(place, scratch.data());
    convert(DType::float32, scratch.data(), DType::float64, static_cast<double*>(out) + place.first,
            place.count, store);
  });
}

void ChunkedCodec::decode_add(DType dtype, const std::byte* in, CodecShape shape, double weight,
                              void* out) const {
  const bool wide = is_wide(dtype);
  std::vector<float> scratch(std::min(chunk_, shape.count));
  std::vector<double> widened(wide ? scratch.size() : 0);
  for_chunks(shape.count, in, [&](ChunkPlace<const std::byte> place) {
    place.store = Store::cached;
    decode_chunk(place, scratch.data());
    void* to = static_cast<std::byte*>(out) + place.first * size_of(dtype);
    if (wide) convert(DType::float32, scratch.data(), DType::float64, widened.data(), place.count);
    const Term terms[] = {{to, 1},
                          {wide ? static_cast<const void*>(widened.data()) : scratch.data(), weight}};
    combine(dtype, to, terms, place.count, Store::cached);
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
