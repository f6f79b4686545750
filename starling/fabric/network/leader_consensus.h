#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "starling/fabric/network/transport.h"

namespace starling::fabric::network {

/// Consensus without a store (for MPI). The leader, which is the lowest rank that has not left, decides:
/// other ranks send it their proposals. A rank that leaves sends all agreements that it knows to all ranks,
/// so that the next leader continues from there. Only an announced departure counts, never silence: a rank
/// decides nothing after it has left, so there are never two leaders. Thread-safe.
class LeaderConsensus {
 public:
  struct Agreement {
    std::uint64_t key;
    std::int64_t value;
  };
  /// Never blocks.
  using Send = std::function<void(Rank to, const Frame& frame)>;
  LeaderConsensus(Rank rank, Rank size, Send send);

  /// Waits for the leader's answer.
  std::int64_t agree(std::uint64_t key, std::int64_t proposal);

  /// Called by the transport when such a frame has arrived.
  void proposed(Rank from, const Frame& frame);
  void decided(const Frame& frame);
  void left(Rank peer, const Slice& agreements);

  /// This rank leaves and decides nothing more. Returns all agreements, to be sent to all ranks.
  std::vector<Agreement> close();

 private:
  struct Proposal {
    Rank from;
    Agreement agreement;
  };

  Rank leader() const;
  std::int64_t decide(const Agreement& proposal);

  Rank rank_;
  Send send_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> left_;
  bool closed_ = false;
  std::map<std::uint64_t, std::int64_t> agreements_;
  std::vector<Proposal> early_;  // from ranks that knew before this one that it is the leader
};

}  // namespace starling::fabric::network
