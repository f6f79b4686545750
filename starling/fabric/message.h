#pragma once

#include <cstdint>
#include <string_view>

#include "starling/base/types.h"

namespace starling {

/// What travels before the bytes. Matching reads it; a fabric only carries it.
struct MessageHeader {
  std::uint64_t name = 0;      // hash of the operation's name
  std::uint64_t sequence = 0;  // the k-th message under this name from this sender to this receiver
  std::uint64_t detail = 0;    // what else must agree: hash of the schedule, root, kind of reduction
  std::uint64_t count = 0;     // elements
  std::uint64_t bytes = 0;
  Step step = 0;
  std::uint32_t epoch = 0;  // of the membership view
  std::uint8_t dtype = 0;
  std::uint8_t codec = 0;
  std::uint16_t kind = 0;  // see MessageKind
};
static_assert(sizeof(MessageHeader) == 56);

/// What a message is part of; both sides must mean the same.
enum class MessageKind : std::uint16_t {
  letter = 0,     // send and recv
  complaint = 1,  // the receiver could not take message (name, sequence); the bytes say why
  average,        // of neighbours
  long_average,   // the same in parts
  reduction,
  scattered_reduction,
  broadcast,
  gathering,
  neighbor_gathering,
  relay,
  staged_reduction,
  given_up,  // the sender gave collective (name, sequence) up because rank `detail` is lost
  mark,      // within a fabric: what follows it here comes after what came before it elsewhere
};

/// FNV-1a; equal on every host.
constexpr std::uint64_t hash_name(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3u;
  return hash;
}

}  // namespace starling
