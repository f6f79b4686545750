#pragma once

#include <memory>
#include <span>
#include <string>

#include "starling/fabric/outgoing.h"
#include "starling/flock/block.h"
#include "starling/flock/name.h"
#include "starling/kernel/combine.h"
#include "starling/topology/schedule.h"

namespace starling::flock {

class FlockState;
class NeighborAverage;

/// A neighbor exchange that has been started and leaves the combining to its owner. The neighbors' blocks
/// are lent until this object is dropped, to be combined with anything in one pass.
class PendingExchange {
 public:
  PendingExchange() = default;
  explicit PendingExchange(std::shared_ptr<NeighborAverage> operation) : operation_(std::move(operation)) {}
  PendingExchange(PendingExchange&&) noexcept = default;
  PendingExchange& operator=(PendingExchange&& other) noexcept;
  ~PendingExchange();

  explicit operator bool() const { return operation_ != nullptr; }
  /// Makes progress, never blocks.
  bool ready();
  /// Returns when all messages are there; throws PeerLost, Mismatch or TimedOut.
  void wait();
  /// After wait(): the summands of one piece's result, this rank's own among them.
  std::span<const Term> terms(std::size_t piece = 0) const;
  /// The epoch of the view in which all ranks do this step.
  std::uint32_t epoch() const;

 private:
  std::shared_ptr<NeighborAverage> operation_;
};

/// Follows a schedule at a pace of its own, such as one block of a model among many: the k-th exchange is the
/// schedule's k-th step. Unlike the flock's own schedule it may be one of two blocks (CECA).
class NeighborExchanger {
 public:
  NeighborExchanger() = default;
  NeighborExchanger(const std::shared_ptr<FlockState>& flock, const SchedulePtr& schedule, const Name& name);

  /// Starts the next step's exchange of these pieces (of a two-block schedule a and b); `memory` is where the
  /// only piece lies if it lies in outgoing memory. The pieces' outputs are not written.
  PendingExchange start(Pieces pieces, Outgoing memory = {});
  /// What this rank is going to do in the next step, by ranks of the whole flock, as far as is known.
  Exchange next() const;
  Step step() const;
  /// Sets the step counter; every rank must set the same.
  void set_step(Step step);
  Mixing mixing() const;
  SchedulePtr schedule() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace starling::flock
