#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "starling/base/types.h"

namespace starling::fabric {

/// What a rank is waiting for, published so that other ranks can report why it does not respond.
struct WaitStatus {
  std::int64_t peer = -1;  // the awaited rank; -1: not waiting
  std::uint64_t name = 0;
  std::uint64_t sequence = 0;
  Step step = 0;
  std::uint64_t since = 0;      // distinguishes one wait from the next; 0: the wait may end without the peer
  std::uint64_t confirmed = 0;  // the cycle of waits in which this rank has found itself
  std::array<char, 48> text{};  // the operation's name, truncated to fit
};

/// The last message that a rank posted, to any peer.
struct LastPost {
  std::uint64_t name = 0;  // 0: none yet
  Step step = 0;
};

/// What a rank publishes about itself; over a network it travels with each heartbeat.
struct RankStatus {
  LastPost posted;
  WaitStatus waiting;
};

/// A small status board shared by all ranks of a fabric: each rank's status, the steps it has started, and a
/// table of write-once agreements. Owned by the fabric. Thread-safe.
class Board {
 public:
  virtual ~Board() = default;

  /// Returns the first proposal (not negative) that any rank made under this key; it never changes. Costs one
  /// compare-and-swap.
  virtual std::int64_t agree(std::uint64_t key, std::int64_t proposal) = 0;
  /// The value agreed under this key, if this rank knows of one.
  virtual std::optional<std::int64_t> agreed(std::uint64_t key) const = 0;

  /// Announces that this rank has started `step` of the flock with this identity (0: the flock of all ranks).
  /// Sequentially consistent with agree(): a rank that agrees on something afterwards sees the announcement,
  /// or this rank sees the agreement.
  virtual void announce(std::uint64_t flock, Step step) = 0;
  /// The step that `rank` announced last, -1 before the first. The result is never too low, but may be too
  /// high if the rank has had very many flocks: a board keeps the exact steps of a bounded number of flocks
  /// and for the others only the highest. Empty if the rank does not answer in time because its process is
  /// stopped: ask again.
  virtual std::optional<Step> announced(Rank rank, std::uint64_t flock) const = 0;
  /// Declares that this rank announces nothing more for this flock, so that the memory can be reused.
  virtual void retire(std::uint64_t flock) = 0;

  virtual void publish(const WaitStatus& waiting) = 0;
  /// These two never block: over a network they return what the last heartbeat said.
  virtual WaitStatus waiting(Rank rank) const = 0;
  virtual LastPost posted(Rank rank) const = 0;
};

}  // namespace starling::fabric
