#pragma once

#include <span>

#include "starling/topology/schedule.h"

namespace starling::topology {

/// A schedule whose rounds pair ranks: x_i <- (1 - weight) x_i + weight x_partner.
class Matching : public Schedule {
 public:
  Matching(Rank n, double weight) : Schedule(n), weight_(weight) {}

  double weight() const { return weight_; }
  /// The rank's partner in this round; the rank itself if it has none.
  virtual Rank partner(Step step, Rank rank) const = 0;
  /// All ranks' partners; families with a faster way than n single calls override this.
  virtual void partners(Step step, std::span<Rank> out) const;

 private:
  void fill(Step step, Rank rank, Exchange& out) const final;

  double weight_;
};

}  // namespace starling::topology

namespace starling {
using topology::Matching;
}  // namespace starling
