#pragma once

#include <exception>
#include <string>

#include "starling/base/error.h"
#include "starling/base/types.h"

namespace starling::flock {

/// A peer that an operation needed has died or left.
class PeerLost : public Error {
 public:
  PeerLost(Rank peer, const std::string& operation, Step step, const std::string& why = "")
      : PeerLost(peer, operation, step, peer, why) {}
  /// `operation` is its name in messages, with its step if it counts steps. `first` was lost before `peer`
  /// and may be the reason why `peer` left. `why`: what `first` said when it left, if anything.
  PeerLost(Rank peer, const std::string& operation, Step step, Rank first, const std::string& why = "");

  Rank peer() const { return peer_; }
  const std::string& operation() const { return operation_; }
  Step step() const { return step_; }

 private:
  Rank peer_;
  std::string operation_;
  Step step_;
};

/// Ranks disagree about an operation: shape, dtype, schedule or root. All ranks involved throw this error,
/// which says what each side passed.
class Mismatch : public Error {
 public:
  using Error::Error;
};

/// The ranks of a cycle wait for each other in blocking operations; the message lists the cycle.
class Deadlock : public Error {
 public:
  using Error::Error;
};

/// A wait has taken longer than the flock's timeout.
class TimedOut : public Error {
 public:
  using Error::Error;
};

/// This rank is no longer part of the job: the others have agreed to continue without it, or it is cut off
/// from most of them and they may have done so.
class Excluded : public Error {
 public:
  using Error::Error;
};

/// While an object of this class exists, operations of this thread that fail because of a lost peer log
/// nothing. Used if the result is not needed any more.
class QuietLosses {
 public:
  QuietLosses();
  ~QuietLosses();
  QuietLosses(const QuietLosses&) = delete;
  QuietLosses& operator=(const QuietLosses&) = delete;

  static bool wanted();
};

class RankRuntime;
/// Logs the rank's last operations if `error` is a PeerLost or a TimedOut.
void dump_losses(RankRuntime& runtime, const std::exception_ptr& error);
/// Logs the rank's last operations; `why` is the headline.
void dump_operations(RankRuntime& runtime, const std::string& why);

}  // namespace starling::flock

namespace starling {
using flock::Deadlock;
using flock::Excluded;
using flock::Mismatch;
using flock::PeerLost;
using flock::TimedOut;
}  // namespace starling
