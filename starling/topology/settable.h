#pragma once

#include "starling/topology/schedule.h"

namespace starling {

/// For programs that choose their neighbours as they go: this rank does what it was last told, in every step
/// until it is told something else. What the ranks are told must fit together.
class SettableSchedule final : public Schedule {
 public:
  /// Alone at first.
  SettableSchedule(Rank n, Rank rank);

  /// This rank's exchange from now on, between two steps. Throws InvalidArgument for ranks that are none.
  void set(Exchange exchange);

 private:
  void fill(Step step, Rank rank, Exchange& out) const override;

  Rank rank_;
  Exchange exchange_;
};

}  // namespace starling
