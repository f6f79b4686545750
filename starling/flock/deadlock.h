#pragma once

#include <string>

#include "starling/flock/flock_state.h"

namespace starling::flock {

/// Describes what `rank` has published about itself: its last post, and what it waits for.
std::string what_it_does(FlockState& flock, Rank rank);

/// Publishes what this rank waits for, and follows the waits from rank to rank. Throws Deadlock on every rank
/// of a cycle, once each of them has found the same cycle and knows that it has not sent what its predecessor
/// waits for. Ranks that use the flock from several threads are never part of a cycle, because another thread
/// may still send. A wait that is not `forever` ends anyway: it is published, but is not part of a cycle.
void look_for_deadlock(FlockState& flock, const Expectation& expected, const std::string& operation,
                       Deadline since, bool forever);
/// Throws the Deadlock that the ranks of this rank's cycle have agreed on, if they have.
void raise_known_deadlock(FlockState& flock, Deadline since);

/// Withdraws what look_for_deadlock() published when the wait is over.
class WaitNote {
 public:
  explicit WaitNote(FlockState& flock) : flock_(flock) {}
  WaitNote(const WaitNote&) = delete;
  WaitNote& operator=(const WaitNote&) = delete;
  ~WaitNote();
  /// Keeps the published wait, because another call continues it at once.
  void keep() { kept_ = true; }

 private:
  FlockState& flock_;
  bool kept_ = false;
};

}  // namespace starling::flock
