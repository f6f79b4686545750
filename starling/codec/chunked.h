#pragma once

#include <span>

#include "starling/base/parameters.h"
#include "starling/codec/codec.h"
#include "starling/kernel/store.h"

namespace starling::codec {

/// Where one chunk of a parameter stands in a message: `count` elements, from element `first` on. The
/// payload of a chunk begins at a multiple of 8 bytes.
template <typename Byte>
struct ChunkPlace {
  std::size_t first;
  std::size_t count;
  Byte* header;
  Byte* payload;
  Store store;  // cached or streaming
};

/// A codec that treats a parameter chunk by chunk, in float32. The message is all chunks' headers (of as
/// many bytes as given), then all elements, of as many bits each as given.
class ChunkedCodec : public Codec {
 public:
  /// `chunk` is a multiple of 64, `header_bytes` of 4.
  ChunkedCodec(std::size_t chunk, std::size_t header_bytes, std::size_t bits)
      : chunk_(chunk), header_bytes_(header_bytes), bits_(bits) {}

  std::size_t encoded_bytes(DType dtype, CodecShape shape) const override;
  void encode(DType dtype, const void* in, CodecShape shape, const CodecKey& key,
              std::byte* out) const override;
  void decode(DType dtype, const std::byte* in, CodecShape shape, void* out) const override;
  void decode_add(DType dtype, const std::byte* in, CodecShape shape, double weight,
                  void* out) const override;

 private:
  /// `draws` is the key's; see draw_key().
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

/// The parameter `chunk` of a family, for its list and for its making.
Parameter chunk_parameter(const std::string& fallback);
std::size_t chunk_of(const Parameters& given);

}  // namespace starling::codec
