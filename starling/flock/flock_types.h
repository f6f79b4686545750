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

// Types of the arguments and results of a flock's functions.

namespace starling::flock {

/// What happens to operations when a rank dies.
enum class OnPeerFailure {
  raise,     // operations that need the rank throw PeerLost; the others continue
  reweight,  // operations complete with the survivors
};

using OnLoss [[deprecated("use OnPeerFailure")]] = OnPeerFailure;

/// One rank's part in one step. The weights of missing sources have been added to its self weight.
struct StepRecord {
  Step step = 0;            // of the schedule
  std::uint32_t epoch = 0;  // of the view in which the step was done
  Exchange exchange;        // ranks of the whole flock
};
using StepObserver = std::function<void(const StepRecord&)>;

/// The membership that all ranks agree on. A view applies to scheduled operations from number `first_step` on
/// (counted since joining); earlier operations finish in the previous view.
struct View {
  std::uint32_t epoch = 0;    // members that have died so far
  std::vector<Rank> members;  // live ranks, in the flock's order
  Step first_step = 0;        // -1: not agreed on yet

  bool has(Rank rank) const;
};

/// The weights of one neighbor average that does not follow the schedule: out = self_weight * x + the sum
/// over sources of weight * (the source's scale for this rank) * (the source's x). If sources or destinations
/// are left out, a collective infers them from the other ranks' calls: every rank must take part and leave
/// out the same.
struct Weighted {
  double self_weight = 1;
  std::optional<std::map<Rank, double>> sources = {};       // inferred: 1 each
  std::optional<std::map<Rank, double>> destinations = {};  // scales, usually 1; inferred: 1
  Group group = {};                                         // x first becomes the mean over these ranks
};

/// The user's call that runs operations under internal names, as errors show it: "Trainer::step(), step 41,
/// bucket 0".
struct UserCall {
  std::string call;
  std::string part;            // empty: none
  std::atomic<Step> step{-1};  // -1: it counts no steps
  bool same_step = false;      // its collectives combine values of the same step on all ranks
};

}  // namespace starling::flock

namespace starling {
using flock::OnLoss;
using flock::OnPeerFailure;
using flock::StepObserver;
using flock::StepRecord;
using flock::View;
}  // namespace starling
