#pragma once

#include <map>
#include <vector>

#include "starling/method/channel.h"
#include "starling/simulate/stamp.h"

namespace starling::simulate {

class SimulatedChannel;

/// A node's part of a relay: the counterpart of RelaySum on a flock, with the same means in the same order.
class SimulatedRelay {
 public:
  /// Sends this node's block, with the means it has received, to its neighbors on the trees.
  void post(SimulatedChannel& channel, const Piece& block);
  /// Whether the neighbors' messages that the result needs have arrived.
  bool ready(SimulatedChannel& channel) const;
  /// out <- the average by the method's rule; the next step passes on what has arrived.
  void finish(SimulatedChannel& channel);
  void set_reference(ConstBuffer x);

 private:
  struct RelayedMean {
    std::vector<std::byte> mean;
    std::uint64_t blocks = 0;
  };
  struct TreePart {
    std::size_t count;
    std::vector<Rank> neighbors;
  };
  /// Everything that this node sent in a step, by tree and receiver.
  struct Posted {
    Stamp stamp;
    double time = 0;
    std::map<std::pair<std::size_t, Rank>, RelayedMean> messages;
  };

  std::vector<TreePart> tree_parts(SimulatedChannel& channel, std::size_t count) const;
  const Posted& posted_in(Step step) const { return posted_[static_cast<std::size_t>(step % 2)]; }
  /// The step whose messages go into the result of the current step; -1: none.
  Step used_step(SimulatedChannel& channel) const;
  void hear(SimulatedChannel& channel, Step step);

  Step step_ = 0;  // the current step, or the next one
  Piece block_;
  Posted posted_[2];
  std::map<std::pair<std::size_t, Rank>, RelayedMean> heard_;
  std::vector<std::byte> reference_;
  bool filled_ = false;
};

}  // namespace starling::simulate
