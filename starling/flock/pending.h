#pragma once

#include <chrono>
#include <memory>

#include "starling/base/floors.h"

namespace starling::flock {

class Operation;

/// A started operation. It always ends in a result or an error that names the peer; the memory it was given
/// must live until then. Dropping it waits, like a thread would have to be joined, but swallows the error:
/// call wait().
class Pending {
 public:
  Pending() = default;
  explicit Pending(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;
  ~Pending();

  /// Whether wait() would return, or throw, at once. Makes progress, never blocks.
  bool ready();
  /// Returns when the result is there; throws PeerLost, Mismatch or TimedOut.
  void wait();
  /// The same for at most `duration`; false when that was too short.
  bool wait_for(std::chrono::nanoseconds duration);
  /// A part of wait(), for callers that look at signals in between: false means that they call again at once,
  /// or pause().
  bool wait_on(std::chrono::nanoseconds duration);
  /// The caller of wait_on() does something else now.
  void pause();
  /// Ends an operation of one phase without its result: what has not come is not waited for, and what comes
  /// later is thrown away. Its memory may go.
  void forget();
  /// No thread will wait for it, and the memory it was given lives for ever.
  void abandon();

 private:
  bool wait_part(std::chrono::nanoseconds duration, bool comes_back);

  std::shared_ptr<Operation> operation_;
};

}  // namespace starling::flock

namespace starling {
using flock::Pending;
}  // namespace starling
