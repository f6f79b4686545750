#pragma once

#include <chrono>
#include <memory>

#include "starling/base/floors.h"

namespace starling::flock {

class Operation;

/// A started operation. It always ends with a result or with an error that names the peer; its memory must
/// live until then. The destructor waits but swallows errors, so call wait().
class Pending {
 public:
  Pending() = default;
  explicit Pending(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;
  ~Pending();

  /// Whether wait() would return, or throw, at once. Makes progress, never blocks.
  bool ready();
  /// Returns when the result is available; throws PeerLost, Mismatch or TimedOut.
  void wait();
  /// Like wait(), for at most `duration`; returns false if the operation has not ended by then.
  bool wait_for(std::chrono::nanoseconds duration);
  /// A part of wait(), for callers that check for signals in between. After false, call it again at once, or
  /// call pause().
  bool wait_on(std::chrono::nanoseconds duration);
  /// Call it when the caller of wait_on() interrupts its wait.
  void pause();
  /// Ends a one-phase operation without its result: missing messages are not waited for, and later arrivals
  /// are dropped. Its memory may be freed.
  void forget();
  /// Gives the operation up without waiting for it. Its memory must live for ever.
  void abandon();

 private:
  bool wait_part(std::chrono::nanoseconds duration, bool comes_back);

  std::shared_ptr<Operation> operation_;
};

}  // namespace starling::flock

namespace starling {
using flock::Pending;
}  // namespace starling
