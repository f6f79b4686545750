#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "starling/base/buffer.h"
#include "starling/base/types.h"
#include "starling/flock/staleness.h"

namespace starling::method {

/// Memory of a block that others write to at any time, as flock/window.h has it: a slot per source, and a
/// scalar p that moves with the block. Deposits carry the sender's step, so that their age is known.
class OneSided {
 public:
  virtual ~OneSided() = default;
  using Weights = std::map<Rank, double>;
  /// Slots that begin with what the block is, or empty; or a value that others may change.
  enum class Start { copies, empty, shared };

  /// Writes the block times a weight to these ranks' slots, over what is there or added to it; then the block
  /// and p are multiplied by self_weight.
  virtual void put(const Weights& destinations, double self_weight) = 0;
  virtual void accumulate(const Weights& destinations, double self_weight) = 0;
  /// block <- self_weight * block + the sum of weight * slot, p likewise; `reset` empties the slots. Says how
  /// old what was there is.
  virtual void update(double self_weight, const Weights& sources, bool reset) = 0;
  virtual double p() const = 0;
  virtual void set_p(double p) = 0;
  /// Everything empty, as if nothing had been put.
  virtual void clear() = 0;

  // A value that other ranks change, too, instead of slots: for pair gossip.

  /// This rank's value as it is now; set; or changed by what is added.
  virtual void load(Buffer out) = 0;
  virtual void store(ConstBuffer value) = 0;
  virtual void add(ConstBuffer increment) = 0;
  /// The other rank's value goes weight * (mine - its own) towards `mine`; `moved` gets how far.
  virtual void meet(Rank other, ConstBuffer mine, double weight, Buffer moved) = 0;

  /// Whether a neighbour is still there.
  virtual bool alive(Rank neighbor) const = 0;
  virtual std::vector<Rank> sources() const = 0;
  virtual std::vector<Rank> destinations() const = 0;
};

}  // namespace starling::method
