#pragma once

#include "starling/topology/schedule.h"

namespace starling::topology {

/// A schedule for programs that choose neighbors at run time: this rank uses the exchange that was set last,
/// in every step until another one is set. The exchanges of all ranks must be consistent.
class SettableSchedule final : public Schedule {
 public:
  /// At first this rank exchanges with no other.
  SettableSchedule(Rank n, Rank rank);

  /// Sets this rank's exchange from the next step on; call it between two steps. Throws InvalidArgument if a
  /// rank is out of range.
  void set(Exchange exchange);

 private:
  void fill(Step step, Rank rank, Exchange& out) const override;

  Rank rank_;
  Exchange exchange_;
};

}  // namespace starling::topology

namespace starling {
using topology::SettableSchedule;
}  // namespace starling
