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

class Flock;
class NeighborAverage;

/// A started neighbor exchange whose owner combines the blocks. The neighbors' blocks are lent until this
/// object is destroyed, so they can be combined with other data in one pass.
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
  /// Returns when all messages have arrived; throws PeerLost, Mismatch or TimedOut.
  void wait();
  /// After wait(): the terms of one piece's result, including this rank's own.
  std::span<const Term> terms(std::size_t piece = 0) const;
  /// The epoch of the view in which all ranks do this step.
  std::uint32_t epoch() const;

 private:
  std::shared_ptr<NeighborAverage> operation_;
};

/// Exchanges along a schedule with its own step counter, such as for one block of a model: the k-th exchange
/// is the schedule's k-th step. Every rank creates it. Unlike the flock's own schedule, it may have two
/// blocks (CECA).
class NeighborExchanger {
 public:
  NeighborExchanger() = default;
  NeighborExchanger(const Flock& flock, const SchedulePtr& schedule, const Name& name = "exchanges");

  /// Starts the next step's exchange of these pieces (a and b of a two-block schedule); `memory` is the
  /// outgoing memory that contains the only piece, or empty. The pieces' outputs are not written.
  PendingExchange start(Pieces pieces, Outgoing memory = {});
  /// This rank's exchange in the next step, by ranks of the whole flock, as far as known.
  Exchange next() const;
  Step step() const;
  /// Sets the step counter; every rank must set the same step.
  void set_step(Step step);
  Mixing mixing() const;
  SchedulePtr schedule() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace starling::flock
