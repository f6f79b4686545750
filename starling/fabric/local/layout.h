#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "starling/base/types.h"
#include "starling/fabric/board.h"
#include "starling/fabric/message.h"

// What lies in a rank's shared region. Only its owner allocates there; others read, and write the atomics.
// Memory that was just reserved is zero: zero means "nothing yet" everywhere.

namespace starling::local {

/// One message to one destination: the cache line on which its reader spins.
struct Entry {
  std::atomic<std::uint64_t> payload{0};  // its offset in the sender's region; the store that makes it exist
  MessageHeader header;
};
static_assert(sizeof(Entry) == 64);

inline constexpr std::size_t kEntries = 16;

/// A piece of the list of messages from one rank to another. The reader alone writes the last line, and the
/// writer looks at it only when it wants memory back.
struct alignas(64) Chunk {
  std::array<Entry, kEntries + 1> entries;  // the last one's payload is the offset of the next chunk
  std::array<std::atomic<std::uint8_t>, kEntries> released{};  // the reader has done with the payload
  std::atomic<std::uint8_t> passed{0};                         // the reader has moved on to the next chunk
};

enum class Presence : std::uint32_t { absent, present, left };

/// How far a rank is in one of its flocks. Only that rank writes it.
struct Announcement {
  std::atomic<std::uint64_t> flock{0};
  std::atomic<std::int64_t> step{0};  // + 1
};

inline constexpr std::size_t kAnnouncements = 64;

/// The beginning of a region; one Chunk per destination follows, then, at rank 0, the register.
struct Control {  // NOLINT(clang-analyzer-optin.performance.Padding): a line for each reader
  std::atomic<Presence> presence{Presence::absent};

  // Who posts to this rank looks here whether it sleeps.
  alignas(64) std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> bell{0};  // a futex

  // Notes of this rank for others.
  alignas(64) std::array<Announcement, kAnnouncements> announced{};  // the first is that of all ranks
  std::atomic<std::int64_t> announced_elsewhere{0};  // the highest of the flocks that have no place here
  alignas(64) std::atomic<std::uint64_t> posted_name{0};
  std::atomic<std::int64_t> posted_step{0};
  alignas(64) std::atomic<std::uint64_t> waiting_version{0};  // odd while the words are being written
  std::array<std::atomic<std::uint64_t>, sizeof(Waiting) / 8> waiting{};
};

/// One register of the table that everybody agrees in.
struct Register {
  std::atomic<std::uint64_t> key{0};
  std::atomic<std::int64_t> value{0};  // + 1
};

inline constexpr std::size_t kRegisters = std::size_t{1} << 14;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "shared memory needs atomics without locks");

constexpr std::uint64_t aligned(std::uint64_t offset, std::uint64_t to = 64) {
  return (offset + to - 1) / to * to;
}
constexpr std::uint64_t chunk_offset(Rank destination) {
  return aligned(sizeof(Control)) + static_cast<std::uint64_t>(destination) * sizeof(Chunk);
}
constexpr std::uint64_t registers_offset(Rank size) {
  return aligned(chunk_offset(size), 4096);
}
constexpr std::uint64_t heap_offset(Rank rank, Rank size) {
  return registers_offset(size) + (rank == 0 ? aligned(kRegisters * sizeof(Register), 4096) : 0);
}

}  // namespace starling::local
