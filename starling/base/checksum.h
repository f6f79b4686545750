#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "starling/base/floors.h"

namespace starling {

/// XXH3, 64 bits: finds damage at the speed of memory. Not against forgers; see sha256.h for those.
class Checksum {
 public:
  Checksum();
  Checksum& add(std::span<const std::byte> bytes);
  /// Of everything added so far.
  std::uint64_t value() const;

 private:
  alignas(64) std::array<std::byte, 576> state_;
};

std::uint64_t checksum_of(std::span<const std::byte> bytes);

/// 16 hexadecimal digits, always.
std::string checksum_text(std::uint64_t checksum);
/// Parses the text of a checksum; 0 if it is malformed.
std::uint64_t parse_checksum(std::string_view text);

}  // namespace starling
