#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "starling/fabric/fabric.h"

namespace starling::flock {

/// Runs several ranks, one board access at a time, in an order drawn from a seed: the same seed gives the
/// same interleaving, whatever the threads do. A rank can be killed between two accesses.
class Interleaving {
 public:
  Interleaving(Rank size, unsigned seed);

  /// Runs `body` on each rank, with a fabric of which only rank, size and board work.
  void run(const std::function<void(Fabric& fabric)>& body);

 private:
  friend class InterleavedFabric;
  /// Waits for this rank's turn.
  void turn(Rank rank);
  void leave(Rank rank);
  void draw();

  Rank size_;
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> running_;
  Rank next_ = -1;
  Rank arrived_ = 0;
  std::map<std::uint64_t, std::int64_t> registers_;
  std::map<std::pair<Rank, std::uint64_t>, Step> announced_;  // by rank and flock
};

}  // namespace starling::flock
