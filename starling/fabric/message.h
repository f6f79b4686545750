#pragma once

#include <cstdint>
#include <string>

#include "starling/base/types.h"

namespace starling {

/// What travels before the bytes. Matching reads it; a fabric only carries it.
struct MessageHeader {
  std::uint64_t name = 0;      // hash of the operation's name
  std::uint64_t sequence = 0;  // the k-th message under this name from this sender to this receiver
  std::uint64_t schedule = 0;  // hash of the sender's schedule, 0 where none is involved
  std::uint64_t count = 0;     // elements
  std::uint64_t bytes = 0;
  Step step = 0;
  std::uint32_t epoch = 0;  // of the membership view
  std::uint8_t dtype = 0;
  std::uint8_t codec = 0;
  std::uint16_t kind = 0;  // see MessageKind
};
static_assert(sizeof(MessageHeader) == 56);

enum class MessageKind : std::uint16_t {
  data = 0,
  complaint = 1,  // the receiver could not take message (name, sequence); the bytes say why
};

/// FNV-1a; equal on every host.
constexpr std::uint64_t hash_name(const char* text, std::size_t length) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (std::size_t i = 0; i < length; ++i)
    hash = (hash ^ static_cast<unsigned char>(text[i])) * 0x100000001B3u;
  return hash;
}
inline std::uint64_t hash_name(const std::string& text) {
  return hash_name(text.data(), text.size());
}

}  // namespace starling
