#pragma once

#include "starling/base/random.h"
#include "starling/codec/codec.h"

namespace starling::codec {

/// The Philox key of a CodecKey. Its numbers are those of counters {block, 0, 0, 0}, so element e of a
/// parameter draws the same number however the work is divided.
inline std::uint64_t draw_key(const CodecKey& key) {
  const auto step = static_cast<std::uint64_t>(key.step);
  const auto word =
      philox({static_cast<std::uint32_t>(key.stream), static_cast<std::uint32_t>(key.stream >> 32),
              static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32)},
             key.seed);
  return (std::uint64_t{word[1]} << 32) | word[0];
}

}  // namespace starling::codec
