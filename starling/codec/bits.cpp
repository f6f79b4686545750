#include "starling/codec/bits.h"

#include <cstring>

namespace starling::codec {

void pack_bits(std::span<const std::int16_t> codes, unsigned bits, std::byte* out) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  std::uint64_t word = 0;
  unsigned filled = 0;
  for (const std::int16_t signed_code : codes) {
    const std::uint64_t code = static_cast<std::uint64_t>(signed_code) & mask;
    word |= code << filled;
    filled += bits;
    if (filled < 64) continue;
    std::memcpy(out, &word, sizeof(word));
    out += sizeof(word);
    filled -= 64;
    word = code >> (bits - filled);
  }
  if (filled > 0) std::memcpy(out, &word, sizeof(word));
}

void unpack_bits(const std::byte* in, unsigned bits, std::span<std::int16_t> codes) {
  const unsigned unused = 64 - bits;
  std::uint64_t word = 0;
  unsigned left = 0;
  for (std::int16_t& code : codes) {
    std::uint64_t taken = word;
    if (left < bits) {
      std::memcpy(&word, in, sizeof(word));
      in += sizeof(word);
      taken |= word << left;
      word >>= bits - left;
      left += 64;
    } else {
      word >>= bits;
    }
    left -= bits;
    code = static_cast<std::int16_t>(static_cast<std::int64_t>(taken << unused) >> unused);
  }
}

}  // namespace starling::codec
