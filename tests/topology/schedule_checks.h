#pragma once

#include <string>
#include <vector>

#include <Eigen/Core>

#include "starling/topology/schedule.h"
#include "topology/dense_reference.h"

namespace starling::topology {

/// A spec as the name of a test, for GoogleTest takes letters, digits and underscores only.

/// What every rank does in one step.
std::vector<Exchange> all_exchanges(const Schedule& schedule, Step step);

/// Why the exchanges do not fit together, or "": destinations are the inverse of the sources (lanes too),
/// nobody hears itself or anybody twice, and the members of a group agree on it.
std::string inconsistency(const std::vector<Exchange>& exchanges);

/// The exchanges multiplied out by hand, groups included.
reference::DenseRound multiply_out(const std::vector<Exchange>& exchanges);

/// The same from RoundMatrix::entries(); `problem` says what is wrong with the order or the entries, or is
/// "".
reference::DenseRound from_entries(const Schedule& schedule, Step step, std::string& problem);

/// The first difference above the tolerance, or "".
std::string difference(const Eigen::MatrixXd& actual, const Eigen::MatrixXd& expected, double tolerance);

/// The most others that a rank hears, or tells when `columns`.
int largest_degree(const reference::DenseRound& round, bool columns);

/// Runs the rounds on one value per rank by their definition: block b and the push-sum weight are carried
/// along.
struct Averaging {
  Averaging(const Schedule& of, std::uint64_t seed);

  void run(Step first, Step count);
  /// New random values under the same b and push-sum weights.
  void restart(std::uint64_t seed);
  /// The largest distance of an estimate from the average of all values.
  double error() const;

  const Schedule& schedule;
  std::vector<double> a;
  std::vector<double> b;
  std::vector<double> p;  // the push-sum weight
  double mean = 0;        // of what the values were at the start
};

/// The error after `count` rounds from `first` on, from a random start.
double error_after(const Schedule& schedule, Step first, Step count);

/// Checks at single ranks of schedules too large to look at as a whole.
void expect_consistent_at(const Schedule& schedule, const std::vector<Step>& steps,
                          const std::vector<Rank>& ranks);

}  // namespace starling::topology
