#pragma once

#include <string>
#include <vector>

#include <Eigen/Core>

#include "starling/topology/schedule.h"

namespace starling::topology {

/// Returns how many standard deviations a chi-square statistic lies above its expectation (Wilson and
/// Hilferty).
double chi_square_sigmas(const std::vector<int>& counts, const std::vector<double>& probabilities);
/// The same for equal probabilities.
double chi_square_sigmas(const std::vector<int>& counts);

/// The matrix of one round of a one-block schedule.
Eigen::MatrixXd dense_round(const Schedule& schedule, Step step);

/// Returns by how many standard errors the mean of |Wx - Jx|^2 / |x - Jx|^2 over the rounds [0, steps)
/// differs from `expected`.
double contraction_sigmas(const Schedule& schedule, Eigen::VectorXd x, int steps, double expected);

/// A vector of normal random numbers.
Eigen::VectorXd random_vector(Rank n, unsigned seed);

/// The only source of each rank, or the rank itself.
std::vector<Rank> partners(const Schedule& schedule, Step step);

/// The hops of a d-equistatic schedule with m draws, each repeated as often as it was drawn.
std::vector<Rank> equistatic_hops(const Schedule& schedule, int m);

}  // namespace starling::topology
