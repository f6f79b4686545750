#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "starling/base/buffer.h"
#include "starling/base/types.h"
#include "starling/flock/staleness.h"

namespace starling::method {

/// Memory of a block that other ranks write to at any time, like flock/window.h: one slot per source, and a
/// scalar p that moves with the block. Deposits carry the sender's step, so that their age is known.
class OneSided {
 public:
  virtual ~OneSided() = default;
  using Weights = std::map<Rank, double>;
  /// The initial content: slots with a copy of the block, empty slots, or one value that other ranks may
  /// change.
  enum class Start { copies, empty, shared };

  /// Writes the block times a weight to these ranks' slots, or adds it to them; then the block and p are
  /// multiplied by self_weight.
  virtual void put(const Weights& destinations, double self_weight) = 0;
  virtual void accumulate(const Weights& destinations, double self_weight) = 0;
  /// block <- self_weight * block + the sum of weight * slot, p likewise; `reset` empties the slots. Records
  /// the age of the values used.
  virtual void update(double self_weight, const Weights& sources, bool reset) = 0;
  virtual double p() const = 0;
  virtual void set_p(double p) = 0;
  /// Empties the slots, as if nothing had been put.
  virtual void clear() = 0;

  // A value that other ranks may change, too, instead of slots: for pair gossip.

  /// Reads, sets or adds to this rank's value.
  virtual void load(Buffer out) = 0;
  virtual void store(ConstBuffer value) = 0;
  virtual void add(ConstBuffer increment) = 0;
  /// Moves the other rank's value by weight * (mine - its value), and writes the change to `moved`.
  virtual void average_with(Rank other, ConstBuffer mine, double weight, Buffer moved) = 0;

  /// Whether the neighbor is alive.
  virtual bool alive(Rank neighbor) const = 0;
  virtual std::vector<Rank> sources() const = 0;
  virtual std::vector<Rank> destinations() const = 0;
};

}  // namespace starling::method
