#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/topology/exchange.h"

// What a flock's functions take and return.

namespace starling::flock {

/// What happens to operations when a rank dies.
enum class OnPeerFailure {
  raise,     // those that need it throw PeerLost, the others go on
  reweight,  // they complete with the survivors
};

using OnLoss [[deprecated("its name is OnPeerFailure")]] = OnPeerFailure;

/// What one rank did in one step: its weights after those of missing sources went to itself.
struct StepRecord {
  Step step = 0;            // of the schedule
  std::uint32_t epoch = 0;  // of the view it was done in
  Exchange exchange;        // ranks of the whole flock
};
using StepObserver = std::function<void(const StepRecord&)>;

/// The membership everybody agrees on. A view holds for scheduled operations from number `first_step` on
/// (counted since joining); earlier ones are finished in the view before it.
struct View {
  std::uint32_t epoch = 0;    // members that have died so far
  std::vector<Rank> members;  // alive, in the flock's order
  Step first_step = 0;        // -1: not agreed on yet

  bool has(Rank rank) const;
};

/// The weights of one neighbour average that does not follow the schedule: out = self_weight * x + the sum
/// over sources of weight * (their scale for this rank) * (their x). A side that is not given is inferred
/// from the other ranks' other sides, by a collective that every rank must take part in: then every rank
/// leaves out the same side.
struct Weighted {
  double self_weight = 1;
  std::optional<std::map<Rank, double>> sources = {};       // inferred: 1 each
  std::optional<std::map<Rank, double>> destinations = {};  // scales, usually 1 each; inferred: 1 each
  Group group = {};                                         // whose mean x becomes first
};

/// The call of the user's in which operations under some internal names happen, as messages show it:
/// "Trainer::step(), step 41, bucket 0".
struct UserCall {
  std::string call;
  std::string part;            // empty where it has none
  std::atomic<Step> step{-1};  // -1: it counts none
  bool same_step = false;      // what its collectives sum belongs to one step on all ranks
};

}  // namespace starling::flock

namespace starling {
using flock::OnLoss;
using flock::OnPeerFailure;
using flock::StepObserver;
using flock::StepRecord;
using flock::View;
}  // namespace starling
