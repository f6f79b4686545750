#pragma once

#include <memory>
#include <span>
#include <string>

#include "starling/flock/block.h"
#include "starling/flock/core.h"
#include "starling/flock/name.h"
#include "starling/kernel/combine.h"

namespace starling {

class NeighborAverage;

/// A neighbour exchange that has been started, and whose combining is its owner's: what the neighbours sent
/// is lent, and can be combined with anything in one pass. Moves; ends what it lends when it goes.
class Exchanging {
 public:
  Exchanging() = default;
  explicit Exchanging(std::shared_ptr<NeighborAverage> operation) : operation_(std::move(operation)) {}
  Exchanging(Exchanging&&) noexcept = default;
  Exchanging& operator=(Exchanging&& other) noexcept;
  ~Exchanging();

  explicit operator bool() const { return operation_ != nullptr; }
  /// Makes progress, never blocks.
  bool ready();
  /// Returns when everybody's is there; throws PeerLost, Mismatch or TimedOut.
  void wait();
  /// After wait(): the summands of one piece's result, this rank's own among them.
  std::span<const Term> terms(std::size_t piece = 0) const;
  /// Of the view in which everybody does this step.
  std::uint32_t epoch() const;

 private:
  std::shared_ptr<NeighborAverage> operation_;
};

/// A schedule that somebody follows at a pace of its own, such as one block of a model among many: the k-th
/// exchange is the schedule's k-th step. Unlike the flock's own schedule it may be one of two blocks (CECA).
class Rounds {
 public:
  Rounds() = default;
  Rounds(const std::shared_ptr<Core>& core, const SchedulePtr& schedule, const Name& name);

  /// Starts the next step's exchange of these pieces (of a two-block schedule a and b); `memory` is where the
  /// only piece lies if it lies in outgoing memory. What `pieces` would write to is not touched.
  Exchanging start(Pieces pieces, Outgoing memory = {});
  /// What this rank is going to do in the next step, by ranks of the whole flock, as far as is known.
  Exchange next() const;
  Step step() const;
  /// As after so many steps; every rank must be set to the same.
  void set_step(Step step);
  Mixing mixing() const;
  SchedulePtr schedule() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace starling
