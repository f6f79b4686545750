#pragma once

#include <cstdint>
#include <string_view>

namespace starling {

/// The FNV-1a hash of a name; the same on every host.
constexpr std::uint64_t hash_name(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3u;
  return hash;
}

}  // namespace starling
