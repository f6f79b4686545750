#pragma once

#include <atomic>
#include <cstdint>

#include "starling/base/types.h"

namespace starling::simulate {

/// The round of an object and the pass in which it was made. Nodes on other threads may query it while it is
/// being made: an object made in the current pass is not available yet.
class Stamp {
 public:
  void set(Step round, std::int64_t pass) {
    pass_.store(pass, std::memory_order_relaxed);
    round_.store(round, std::memory_order_release);  // last: a thread that sees the round sees its pass
  }
  bool is_there(Step round, std::int64_t now) const {
    return round_.load(std::memory_order_acquire) == round && pass() < now;
  }

  Step round() const { return round_.load(std::memory_order_relaxed); }
  std::int64_t pass() const { return pass_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Step> round_{-1};
  std::atomic<std::int64_t> pass_{-1};
};

}  // namespace starling::simulate
