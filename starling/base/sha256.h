#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "starling/base/floors.h"

namespace starling {

/// SHA-256 (FIPS 180-4), to identify files; it hashes a few hundred megabytes per second.
class Sha256 {
 public:
  static constexpr std::size_t kBlock = 64;
  using Digest = std::array<std::uint8_t, 32>;

  void update(std::span<const std::uint8_t> bytes);

  /// The digest of everything added so far. Add nothing afterwards.
  Digest digest();
  /// The digest as 64 hexadecimal digits.
  std::string finish();

 private:
  void compress(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_{0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                                      0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
  std::array<std::uint8_t, kBlock> rest_{};  // bytes that do not fill a block yet
  std::uint64_t total_ = 0;
};

std::string sha256(std::span<const std::uint8_t> bytes);

}  // namespace starling
