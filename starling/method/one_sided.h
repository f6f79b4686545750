#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "starling/base/types.h"
#include "starling/flock/staleness.h"

namespace starling {

/// Memory of a block that others write to at any time, as flock/window.h has it: a slot per source, and a
/// scalar p that moves with the block. Deposits carry the sender's step, so that their age is known.
class OneSided {
 public:
  virtual ~OneSided() = default;
  using Weights = std::map<Rank, double>;

  /// Writes the block times a weight to these ranks' slots, over what is there or added to it; then the block
  /// and p are multiplied by self_weight.
  virtual void put(const Weights& destinations, double self_weight) = 0;
  virtual void accumulate(const Weights& destinations, double self_weight) = 0;
  /// Adds `value`, instead of the block, to what is in these ranks' slots.
  virtual void accumulate_of(const void* value, const Weights& destinations) = 0;
  /// A source's block as of its last publish(); false where it never did.
  virtual bool read(Rank source, void* out) = 0;
  /// block <- self_weight * block + the sum of weight * slot, p likewise; `reset` empties the slots. Says how
  /// old what was there is.
  virtual void update(double self_weight, const Weights& sources, bool reset) = 0;
  /// Others may read() what the block is now.
  virtual void publish() = 0;
  virtual double p() const = 0;
  virtual void set_p(double p) = 0;
  /// Everything empty, as if nothing had been put.
  virtual void clear() = 0;

  virtual std::vector<Rank> sources() const = 0;
  virtual std::vector<Rank> destinations() const = 0;
};

}  // namespace starling
