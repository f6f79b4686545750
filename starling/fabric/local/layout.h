#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "starling/base/types.h"
#include "starling/fabric/board.h"
#include "starling/fabric/message.h"

// The layout of a rank's shared region. Only its owner allocates there; other ranks read, and write atomics
// only. Newly reserved memory is zero, so that zero means "nothing yet" everywhere.

namespace starling::fabric::local {

/// One message to one destination: the cache line on which the reader spins.
struct MessageSlot {
  std::atomic<std::uint64_t> payload{0};  // offset in the sender's region; storing it publishes the message
  MessageHeader header;
};
static_assert(sizeof(MessageSlot) == 64);

inline constexpr std::size_t kSlots = 16;

/// A piece of the message list from one rank to another. Only the reader writes the last cache line, and the
/// sender reads that line only when it reclaims memory.
struct alignas(64) Chunk {
  std::array<MessageSlot, kSlots + 1> slots;  // the last slot's payload is the offset of the next chunk
  std::array<std::atomic<std::uint8_t>, kSlots> released{};  // by the reader: payload may be reused
  std::atomic<std::uint8_t> passed{0};  // by the reader: it has moved on to the next chunk
};

enum class Presence : std::uint32_t { absent, present, left };

/// The step that a rank has started in one of its flocks. Only that rank writes it.
struct Announcement {
  std::atomic<std::uint64_t> flock{0};
  std::atomic<std::int64_t> step{0};  // + 1
};

inline constexpr std::size_t kAnnouncements = 64;

/// The beginning of a region; one Chunk per destination follows, then, at rank 0, the table of agreements.
struct Control {  // NOLINT(clang-analyzer-optin.performance.Padding): one line per reader
  std::atomic<Presence> presence{Presence::absent};

  // A sender checks these after posting, to wake this rank if it sleeps.
  alignas(64) std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> bell{0};  // a futex

  // The status of this rank, for the others.
  alignas(64) std::array<Announcement, kAnnouncements> announced{};  // [0]: the flock of all ranks
  std::atomic<std::int64_t> highest_without_slot{0};                 // highest step of flocks without a slot
  alignas(64) std::atomic<std::uint64_t> posted_name{0};
  std::atomic<std::int64_t> posted_step{0};
  alignas(64) std::atomic<std::uint64_t> waiting_version{0};  // a seqlock: odd during a write
  std::array<std::atomic<std::uint64_t>, sizeof(WaitStatus) / 8> waiting{};
};

/// One entry of the table of agreements, a hash table with open addressing.
struct AgreementSlot {
  std::atomic<std::uint64_t> key{0};
  std::atomic<std::int64_t> value{0};  // + 1
};

inline constexpr std::size_t kAgreementSlots = std::size_t{1} << 14;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "shared memory needs atomics without locks");

constexpr std::uint64_t aligned(std::uint64_t offset, std::uint64_t to = 64) {
  return (offset + to - 1) / to * to;
}
constexpr std::uint64_t chunk_offset(Rank destination) {
  return aligned(sizeof(Control)) + static_cast<std::uint64_t>(destination) * sizeof(Chunk);
}
constexpr std::uint64_t agreement_slots_offset(Rank size) {
  return aligned(chunk_offset(size), 4096);
}
constexpr std::uint64_t heap_offset(Rank rank, Rank size) {
  return agreement_slots_offset(size) +
         (rank == 0 ? aligned(kAgreementSlots * sizeof(AgreementSlot), 4096) : 0);
}

}  // namespace starling::fabric::local
