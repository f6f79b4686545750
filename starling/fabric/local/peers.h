#pragma once

#include <sys/types.h>
#include <vector>

#include "starling/base/types.h"

namespace starling::local {

/// Watches processes through pidfds, whoever started them.
class Peers {
 public:
  Peers() = default;
  /// pids[r] is rank r's process; 0 for a rank that lives in this process and is not watched.
  explicit Peers(const std::vector<pid_t>& pids);
  Peers(Peers&& other) noexcept { descriptors_.swap(other.descriptors_); }
  Peers& operator=(Peers&&) = delete;
  ~Peers();

  /// One poll() call; a process that has ended, even as a zombie, is dead.
  bool dead(Rank rank) const;

 private:
  static constexpr int kGone = -2;
  std::vector<int> descriptors_;  // -1: not watched
};

}  // namespace starling::local
