#pragma once

#include <span>
#include <vector>

#include "starling/topology/circulant.h"
#include "starling/topology/matching.h"
#include "starling/topology/matrix.h"

namespace starling::topology {

/// Simulates all ranks of a schedule: n x dim values, mixed round by round. Circulant schedules and matchings
/// have fast paths, so that a round of a million ranks takes milliseconds.
class Mixer {
 public:
  explicit Mixer(SchedulePtr schedule, int dim = 1);

  /// Sets the start values of all ranks (rank-major) and the first round.
  void start(std::span<const double> values, Step first = 0);
  /// Runs the next round.
  void advance();

  Step step() const { return step_; }
  /// The ranks' values: x, block a, or the push-sum estimate x / p.
  std::span<const double> values() const { return mixing_ == Mixing::push_sum ? estimate_ : x_; }
  /// Messages of one model's size that the last round sent; a mean over g ranks counts as a ring all-reduce,
  /// 2 (g - 1).
  double messages() const { return messages_; }

 private:
  void advance_circulant(const Circulant& schedule);
  void advance_matching(const Matching& schedule);
  void advance_general();
  void mix_general(const RoundMatrix& round);
  void fill_cache();

  SchedulePtr schedule_;
  const Circulant* circulant_;
  const Matching* matching_;
  Mixing mixing_;
  int dim_;
  Step step_ = 0;
  double messages_ = 0;

  std::vector<double> x_, x_next_;
  std::vector<double> b_, b_next_;  // CECA's second block, only if some round sends it
  std::vector<double> p_, p_next_, estimate_;
  bool sends_b_ = false;

  Exchange row_;
  std::vector<Rank> partners_;
  std::vector<RoundMatrix> cache_;  // all rounds of a period, if they fit
};

/// ||values - mean|| over all ranks and coordinates, where `mean` has dim entries.
double distance_to(std::span<const double> values, std::span<const double> mean);

/// The mean over the ranks, coordinate by coordinate.
std::vector<double> mean_of(std::span<const double> values, int dim);

}  // namespace starling::topology

namespace starling {
using topology::distance_to;
using topology::mean_of;
using topology::Mixer;
}  // namespace starling
