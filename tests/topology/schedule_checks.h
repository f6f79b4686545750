#pragma once

#include <string>
#include <vector>

#include <Eigen/Core>

#include "starling/topology/schedule.h"
#include "topology/dense_reference.h"

namespace starling::topology {

/// Converts a spec to the name of a test: GoogleTest accepts letters, digits and underscores only.

/// The exchanges of all ranks in one step.
std::vector<Exchange> all_exchanges(const Schedule& schedule, Step step);

/// Why the exchanges are inconsistent, or "": destinations must be the inverse of the sources (lanes too), no
/// rank may be its own source or have a source twice, and the members of a group must agree on it.
std::string inconsistency(const std::vector<Exchange>& exchanges);

/// The matrix of the exchanges, groups included.
reference::DenseRound multiply_out(const std::vector<Exchange>& exchanges);

/// The same from RoundMatrix::entries(); `problem` describes an error in the order or the entries, or is "".
reference::DenseRound from_entries(const Schedule& schedule, Step step, std::string& problem);

/// The first difference above the tolerance, or "".
std::string difference(const Eigen::MatrixXd& actual, const Eigen::MatrixXd& expected, double tolerance);

/// The largest number of sources of a rank, or of destinations if `columns`.
int largest_degree(const reference::DenseRound& round, bool columns);

/// Runs the rounds on one value per rank by their definition; block b and the push-sum weight are carried
/// along.
struct Averaging {
  Averaging(const Schedule& of, std::uint64_t seed);

  void run(Step first, Step count);
  /// Draws new random values; b and the push-sum weights are kept.
  void restart(std::uint64_t seed);
  /// The largest distance of an estimate from the average of all values.
  double error() const;

  const Schedule& schedule;
  std::vector<double> a;
  std::vector<double> b;
  std::vector<double> p;  // the push-sum weight
  double mean = 0;        // of the initial values
};

/// The error after `count` rounds starting at `first`, with random values.
double error_after(const Schedule& schedule, Step first, Step count);

/// Checks single ranks of schedules that are too large to check completely.
void expect_consistent_at(const Schedule& schedule, const std::vector<Step>& steps,
                          const std::vector<Rank>& ranks);

}  // namespace starling::topology
