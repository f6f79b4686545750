#pragma once

#include <vector>

#include "starling/base/os/descriptor.h"
#include "starling/base/types.h"

namespace starling::fabric::local {

/// Detects through pidfds which ranks' processes have died. Each process opens its own pidfd and sends it to
/// the others, so that this also works across PID namespaces, in which the same number means different
/// processes. Owned by the local fabric. Thread-safe.
class PeerProcesses {
 public:
  /// processes[r] is rank r's pidfd; empty for a rank of this process, which is not watched.
  explicit PeerProcesses(std::vector<Descriptor> processes) : processes_(std::move(processes)) {}

  /// One poll() call; a process that has ended, even as a zombie, is dead.
  bool dead(Rank rank) const;

  /// A pidfd of this process; empty, with errno set, on failure.
  static Descriptor open_own();

 private:
  std::vector<Descriptor> processes_;
};

}  // namespace starling::fabric::local
