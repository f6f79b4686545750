#pragma once

#include <atomic>
#include <cstdint>

#include "starling/fabric/message.h"

// What lies in a rank's shared region. Only its owner allocates there; others read, and write the atomics.

namespace starling::local {

inline constexpr std::uint64_t kMagic = 0x53'54'41'52'4C'49'4E'47;  // "STARLING"

/// A message on its way to one destination: a link of that pair's list. Offsets are from the owner's region.
struct Node {
  static constexpr std::uint32_t kReleased = 1;  // the reader has done with the payload
  static constexpr std::uint32_t kPassed = 2;    // the reader has moved on to the next node

  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint32_t> state{0};
  std::uint64_t payload = 0;
  MessageHeader header;
};

enum class Presence : std::uint32_t { absent, present, left };

/// The beginning of a region; `heads` (one Node per destination, the empty start of its list) follow it.
struct Control {
  std::uint64_t magic = kMagic;
  std::atomic<Presence> presence{Presence::absent};
  alignas(64) std::atomic<std::uint32_t> bell{0};  // rung by whoever posts to this rank; a futex
  std::atomic<std::uint32_t> sleepers{0};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "shared memory needs atomics without locks");

constexpr std::uint64_t aligned(std::uint64_t offset, std::uint64_t to = 64) {
  return (offset + to - 1) / to * to;
}
constexpr std::uint64_t head_offset(Rank destination) {
  return aligned(sizeof(Control)) + static_cast<std::uint64_t>(destination) * aligned(sizeof(Node));
}
constexpr std::uint64_t heap_offset(Rank size) {
  return aligned(head_offset(size), 4096);
}

}  // namespace starling::local
