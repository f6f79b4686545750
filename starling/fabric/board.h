#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "starling/base/types.h"

namespace starling {

/// What a rank waits for, so that others can see why it does not answer.
struct Waiting {
  std::int64_t peer = -1;  // -1: for nobody
  std::uint64_t name = 0;
  std::uint64_t sequence = 0;
  Step step = 0;
  std::uint64_t since = 0;      // tells one wait from the next; 0: it may end by itself
  std::uint64_t confirmed = 0;  // the cycle of waits that this rank has found itself in
  std::array<char, 48> text{};  // the operation's name, cut to fit
};

/// The last message a rank posted, to whomever.
struct Posted {
  std::uint64_t name = 0;  // 0: none yet
  Step step = 0;
};

/// Where ranks leave notes for all: few words, read at any time, and a register that everybody agrees on.
/// Thread-safe.
class Board {
 public:
  virtual ~Board() = default;

  /// The first proposal (not negative) that anybody made under this key; it never changes. One compare and
  /// swap.
  virtual std::int64_t agree(std::uint64_t key, std::int64_t proposal) = 0;
  virtual std::optional<std::int64_t> agreed(std::uint64_t key) const = 0;

  /// This rank has started `step` of the flock with this identity, 0 for that of all ranks. Ordered with the
  /// register: a rank that agrees on something afterwards sees it, or this rank sees the agreement.
  virtual void announce(std::uint64_t flock, Step step) = 0;
  /// The last that was announced, -1 before the first. Never less than that, but perhaps more where the rank
  /// has had very many flocks: a board keeps the steps of some, and of the others only the highest. Nothing
  /// where the rank does not answer for a while, because it is stopped: ask again.
  virtual std::optional<Step> announced(Rank rank, std::uint64_t flock) const = 0;
  /// This rank will announce nothing more for this flock, so that its place can be given to another one.
  virtual void retire(std::uint64_t flock) = 0;

  virtual void publish(const Waiting& waiting) = 0;
  /// These two never block: over a network they are what was heard last.
  virtual Waiting waiting(Rank rank) const = 0;
  virtual Posted posted(Rank rank) const = 0;
};

}  // namespace starling
