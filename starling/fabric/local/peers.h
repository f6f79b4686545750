#pragma once

#include <vector>

#include "starling/base/types.h"
#include "starling/fabric/local/descriptor.h"

namespace starling::local {

/// Watches processes through pidfds. Each process opened its own and sent it, so that processes of different
/// PID namespaces, where numbers mean different processes, watch each other, too.
class Peers {
 public:
  /// processes[r] is rank r's pidfd; empty for a rank that lives in this process and is not watched.
  explicit Peers(std::vector<Descriptor> processes) : processes_(std::move(processes)) {}

  /// One poll() call; a process that has ended, even as a zombie, is dead.
  bool dead(Rank rank) const;

  /// A pidfd of this process; -1 with errno set where there is none.
  static Descriptor open_own();

 private:
  std::vector<Descriptor> processes_;
};

}  // namespace starling::local
