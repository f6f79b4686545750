#include "starling/base/hmac.h"

#include <algorithm>

namespace starling {
namespace {

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

Sha256::Digest hmac_sha256(std::string_view key, std::string_view message) {
  std::array<std::uint8_t, Sha256::kBlock> block{};
  if (key.size() > block.size()) {
    Sha256 shortened;
    shortened.update(bytes_of(key));
    std::ranges::copy(shortened.digest(), block.begin());
  } else {
    std::ranges::copy(bytes_of(key), block.begin());
  }
  const auto masked = [&](std::uint8_t mask) {
    auto copy = block;
    for (std::uint8_t& byte : copy) byte ^= mask;
    return copy;
  };
  Sha256 inner;
  inner.update(masked(0x36));
  inner.update(bytes_of(message));
  Sha256 outer;
  outer.update(masked(0x5C));
  outer.update(inner.digest());
  return outer.digest();
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = difference | static_cast<unsigned>(static_cast<unsigned char>(a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace starling
