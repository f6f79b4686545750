#pragma once

#include <exception>
#include <string>

#include "starling/base/error.h"
#include "starling/base/types.h"

namespace starling {

/// A peer that an operation needed has died or left.
class PeerLost : public Error {
 public:
  PeerLost(Rank peer, const std::string& operation, Step step) : PeerLost(peer, operation, step, peer) {}
  /// `operation` is what messages call it, with its step where it counts any;
  /// `first` was lost before `peer`, which is perhaps why `peer` left.
  PeerLost(Rank peer, const std::string& operation, Step step, Rank first);

  Rank peer() const { return peer_; }
  const std::string& operation() const { return operation_; }
  Step step() const { return step_; }

 private:
  Rank peer_;
  std::string operation_;
  Step step_;
};

/// Ranks disagree about an operation: shape, dtype, schedule, root. Everybody involved gets one that says
/// what each side had.
class Mismatch : public Error {
 public:
  using Error::Error;
};

/// Blocking operations in opposite orders: the ranks wait for each other in a circle, which it names.
class Deadlock : public Error {
 public:
  using Error::Error;
};

/// A wait has taken longer than the flock's timeout.
class TimedOut : public Error {
 public:
  using Error::Error;
};

/// This rank is no longer part of the job: the others have agreed to go on without it, or it is cut off from
/// most of them, who may.
class Excluded : public Error {
 public:
  using Error::Error;
};

class Flight;
/// Where `error` is a PeerLost or a TimedOut, the rank's last operations are told with it.
void dump_losses(Flight& flight, const std::exception_ptr& error);

}  // namespace starling
