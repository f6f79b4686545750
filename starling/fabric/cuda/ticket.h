#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "starling/kernel/flag.h"

// What ranks with messages in device memory share on the host.

namespace starling::fabric::cuda {

/// A cache line of exposed memory. Its flag tells devices, and `released` the owner's host.
struct alignas(64) FlagLine {
  kernel::Flag flag{0};
  /// Of a claim: its reader has enqueued the last work that reads the message. Of a piece: it has been freed.
  std::atomic<std::uint32_t> released{0};
};

/// Names a line of a rank, and the number that its flag is to reach.
struct FlagName {
  std::uint64_t page = 0;
  std::uint32_t line = 0;
  std::uint32_t number = 0;
};

/// The host's part of a message in device memory, sent in its place: where the payload is, the flag that it
/// is complete with, and the reader's own line, which tells the owner that the reader has finished.
struct Ticket {
  std::uint64_t bytes = 0;   // 0: there is no payload, nor what follows
  std::uint64_t offset = 0;  // in the piece
  std::uint64_t piece_bytes = 0;
  FlagName piece;  // its number is the piece's
  FlagName ready;
  FlagName claim;
};
static_assert(std::is_trivially_copyable_v<Ticket>);

/// In MessageHeader::flag: the message is a ticket.
inline constexpr std::uint8_t kTicketFlag = 1;

}  // namespace starling::fabric::cuda
