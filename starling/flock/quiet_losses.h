#pragma once

namespace starling::flock {

/// While an object of this class lives, operations of this thread that fail because a peer is lost write
/// nothing to the log: for results that are not wanted any more.
class QuietLosses {
 public:
  QuietLosses();
  ~QuietLosses();
  QuietLosses(const QuietLosses&) = delete;
  QuietLosses& operator=(const QuietLosses&) = delete;

  static bool wanted();
};

}  // namespace starling::flock
