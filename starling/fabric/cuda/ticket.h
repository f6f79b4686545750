#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "starling/kernel/flag.h"

// The host-side data that ranks share for messages in device memory.

namespace starling::fabric::cuda {

/// A cache line of exposed memory. `flag` is for devices, `released` for the owner's host process.
struct alignas(64) FlagLine {
  kernel::Flag flag{0};
  /// For a claim: the reader has enqueued its last work on the message. For a piece: it has been freed.
  std::atomic<std::uint32_t> released{0};
};

/// Identifies a flag line of a rank and the number that the flag will reach.
struct FlagName {
  std::uint64_t page = 0;
  std::uint32_t line = 0;
  std::uint32_t number = 0;
};

/// The host part of a message in device memory, sent in its place: the location of the payload, the flag that
/// signals its completion, and the reader's flag line, which tells the owner that the reader has finished.
struct Ticket {
  std::uint64_t bytes = 0;   // 0: there is no payload, and the following members are unused
  std::uint64_t offset = 0;  // within the piece
  std::uint64_t piece_bytes = 0;
  FlagName piece;  // its number is the number of the piece
  FlagName ready;
  FlagName claim;
};
static_assert(std::is_trivially_copyable_v<Ticket>);

/// The value of MessageHeader::flag if the message is a ticket.
inline constexpr std::uint8_t kTicketFlag = 1;

}  // namespace starling::fabric::cuda
