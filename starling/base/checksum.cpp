#include "starling/base/checksum.h"

#define XXH_INLINE_ALL
#include <charconv>
#include <fmt/format.h>
#include <new>
#include <xxhash.h>

namespace starling {

static_assert(sizeof(XXH3_state_t) <= 576 && alignof(XXH3_state_t) <= 64);

Checksum::Checksum() {
  XXH3_64bits_reset(new (state_.data()) XXH3_state_t);
}

Checksum& Checksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(reinterpret_cast<XXH3_state_t*>(state_.data()), bytes.data(), bytes.size());
  return *this;
}

std::uint64_t Checksum::value() const {
  return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state_.data()));
}

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string checksum_text(std::uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

std::uint64_t parse_checksum(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

}  // namespace starling
