#pragma once

#include <memory>
#include <optional>
#include <string>

#include "starling/topology/exchange.h"

namespace starling::topology {

/// What ranks must send so that a schedule averages.
enum class Mixing {
  average,    // rows sum to one: x alone
  push_sum,   // only columns sum to one: x and a scalar p (start 1) that travels with it; the estimate is x /
              // p
  two_block,  // CECA: two blocks a and b per rank; a is the result
};

/// A map (step, rank) -> Exchange in O(degree), for any n. Immutable and without state, so any thread may
/// call it.
class Schedule {
 public:
  explicit Schedule(Rank n) : n_(n) {}
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  Rank size() const { return n_; }
  /// The spec as the user gave it, with every seed filled in; for messages.
  const std::string& name() const { return name_; }
  /// The canonical spec, for comparing: ranks with equal canonical names and sizes have equal schedules.
  const std::string& canonical() const { return canonical_.empty() ? name_ : canonical_; }
  void set_name(std::string name, std::string canonical = {}) {
    name_ = std::move(name);
    canonical_ = std::move(canonical);
  }

  /// The number of rounds until the schedule repeats or, for a random one, until its natural cycle ends; 0 if
  /// neither.
  virtual Step period() const { return 1; }
  /// Whether rounds are redrawn from step to step (a static graph that was drawn once is not random in this
  /// sense).
  virtual bool random() const { return false; }
  virtual Mixing mixing() const { return Mixing::average; }

  /// Fills `out`, reusing its memory. Throws InvalidArgument for a rank or step out of range.
  void exchange(Step step, Rank rank, Exchange& out) const;
  Exchange exchange(Step step, Rank rank) const;

  /// rho, if a formula is known: ||W - J||_2, or ||product of a period - J||_2^(1/period).
  virtual std::optional<double> known_rho() const { return std::nullopt; }
  /// Mean-square rho of a random schedule, if a formula is known.
  virtual std::optional<double> known_mean_square_rho() const { return std::nullopt; }

 private:
  /// Fills in the exchange; `out` is empty before.
  virtual void fill(Step step, Rank rank, Exchange& out) const = 0;

  Rank n_;
  std::string name_;
  std::string canonical_;  // empty: the same as the name
};

using SchedulePtr = std::shared_ptr<const Schedule>;

}  // namespace starling::topology

namespace starling {
using topology::Mixing;
using topology::Schedule;
using topology::SchedulePtr;
}  // namespace starling
