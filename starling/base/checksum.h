#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "starling/base/floors.h"

namespace starling {

/// XXH3, 64 bits: detects damage at memory speed. It does not protect against forgery; sha256.h does.
class Checksum {
 public:
  Checksum();
  Checksum& add(std::span<const std::byte> bytes);
  /// The checksum of everything added so far.
  std::uint64_t value() const;

 private:
  alignas(64) std::array<std::byte, 576> state_;
};

std::uint64_t checksum_of(std::span<const std::byte> bytes);

/// The checksum as exactly 16 hexadecimal digits.
std::string checksum_text(std::uint64_t checksum);
/// Parses a checksum's text; returns 0 if it is malformed.
std::uint64_t parse_checksum(std::string_view text);

}  // namespace starling
