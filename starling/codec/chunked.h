#pragma once

#include "starling/base/parameters.h"
#include "starling/codec/host_codec.h"
#include "starling/kernel/store.h"

namespace starling::codec {

/// The place of a chunk of a parameter in a message: `count` elements from element `first` on. A chunk's
/// payload starts at a multiple of 8 bytes.
template <typename Byte>
struct ChunkPlace {
  std::size_t first;
  std::size_t count;
  Byte* header;
  Byte* payload;
  Store store;  // cached or streaming
};

/// A codec that encodes a parameter chunk by chunk, in float32. A message is all chunks' headers, then all
/// elements, with a fixed number of header bytes per chunk and bits per element.
class ChunkedCodec : public HostCodec {
 public:
  /// `chunk` is a multiple of 64, `header_bytes` a multiple of 4.
  ChunkedCodec(std::size_t chunk, std::size_t header_bytes, std::size_t bits)
      : chunk_(chunk), header_bytes_(header_bytes), bits_(bits) {}

  std::size_t encoded_bytes(DType dtype, CodecShape shape) const override;

 protected:
  std::size_t chunk() const { return chunk_; }

 private:
  void host_encode(ConstBuffer in, std::size_t rows, const CodecKey& key,
                   std::span<std::byte> message) const final;
  void host_decode(std::span<const std::byte> message, std::size_t rows, Buffer out) const final;
  void host_decode_add(std::span<const std::byte> message, std::size_t rows, double weight,
                       Buffer out) const final;

  /// `draws` is the key of random draws; see draw_key().
  virtual void encode_chunk(const float* in, const ChunkPlace<std::byte>& place,
                            std::uint64_t draws) const = 0;
  virtual void decode_chunk(const ChunkPlace<const std::byte>& place, float* out) const = 0;

  std::size_t header_total(std::size_t count) const;
  template <typename Byte, typename Body>
  void for_chunks(std::size_t count, Byte* message, const Body& body) const;

  std::size_t chunk_;
  std::size_t header_bytes_;
  std::size_t bits_;
};

/// The parameter `chunk` of a codec family: its declaration, and its value in `given`.
Parameter chunk_parameter(const std::string& fallback);
std::size_t chunk_of(const Parameters& given);

}  // namespace starling::codec
