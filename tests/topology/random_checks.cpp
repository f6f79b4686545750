#include "topology/random_checks.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "topology/schedule_checks.h"

namespace starling::topology {

double chi_square_sigmas(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  double total = 0;
  for (const int count : counts) total += count;
  double statistic = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * probabilities[i];
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  const double freedom = static_cast<double>(counts.size()) - 1;
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - spread)) / std::sqrt(spread);
}

double chi_square_sigmas(const std::vector<int>& counts) {
  return chi_square_sigmas(counts,
                           std::vector<double>(counts.size(), 1.0 / static_cast<double>(counts.size())));
}

Eigen::MatrixXd dense_round(const Schedule& schedule, Step step) {
  return multiply_out(all_exchanges(schedule, step)).a;
}

double contraction_sigmas(const Schedule& schedule, Eigen::VectorXd x, int steps, double expected) {
  x.array() -= x.mean();
  double sum = 0;
  double squares = 0;
  for (Step step = 0; step < steps; ++step) {
    Eigen::VectorXd y(x.size());
    Exchange exchange;
    for (Rank rank = 0; rank < schedule.size(); ++rank) {
      schedule.exchange(step, rank, exchange);
      y(rank) = exchange.self_weight * x(rank);
      for (const Source& source : exchange.sources) y(rank) += source.weight * x(source.rank);
    }
    const double ratio = y.squaredNorm() / x.squaredNorm();
    sum += ratio;
    squares += ratio * ratio;
  }
  const double mean = sum / steps;
  const double variance = std::max(squares / steps - mean * mean, 1e-20);
  return std::abs(mean - expected) / std::sqrt(variance / steps);
}

Eigen::VectorXd random_vector(Rank n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Eigen::VectorXd x(n);
  for (double& value : x) value = normal(generator);
  return x;
}

std::vector<Rank> partners(const Schedule& schedule, Step step) {
  std::vector<Rank> result;
  for (Rank rank = 0; rank < schedule.size(); ++rank) {
    const Exchange exchange = schedule.exchange(step, rank);
    EXPECT_LE(exchange.sources.size(), 1U);
    result.push_back(exchange.sources.empty() ? rank : exchange.sources[0].rank);
  }
  return result;
}

std::vector<Rank> equistatic_hops(const Schedule& schedule, int m) {
  const Rank n = schedule.size();
  std::vector<Rank> hops;
  for (const Source& source : schedule.exchange(0, 0).sources) {
    const double times = source.weight * m * n / (n - 1);
    EXPECT_NEAR(times, std::round(times), 1e-9);
    // Rank 0 receives from rank 0 - u
    for (int i = 0; i < std::lround(times); ++i) hops.push_back(n - source.rank);
  }
  return hops;
}

}  // namespace starling::topology
