#pragma once

namespace starling {

/// While one lives, this thread's operations that fail because a peer is lost write nothing to the log: for
/// results that nobody wants any more.
class QuietLosses {
 public:
  QuietLosses();
  ~QuietLosses();
  QuietLosses(const QuietLosses&) = delete;
  QuietLosses& operator=(const QuietLosses&) = delete;

  static bool wanted();
};

}  // namespace starling
