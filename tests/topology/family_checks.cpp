#include "topology/family_checks.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <vector>

#include "starling/topology/registry.h"
#include "topology/dense_reference.h"
#include "topology/schedule_checks.h"

namespace starling::topology {
namespace {

using reference::DenseRound;
using reference::Matrix;

std::string sum_problem(const Matrix& round, Sums sums, double tolerance) {
  const double rows = (round.rowwise().sum().array() - 1).abs().maxCoeff();
  const double columns = (round.colwise().sum().array() - 1).abs().maxCoeff();
  if (sums != Sums::columns && rows > tolerance) return fmt::format("a row sum is off by {}", rows);
  if (sums != Sums::rows && columns > tolerance) return fmt::format("a column sum is off by {}", columns);
  return "";
}

/// Compares only entries for which the reference defines b.
std::string block_b_problem(const DenseRound& actual, const DenseRound& expected, double tolerance) {
  for (Eigen::Index i = 0; i < expected.b.rows(); ++i) {
    if (expected.b.row(i).isZero(0) && expected.b_from_a.row(i).isZero(0)) continue;
    for (const auto& [mine, theirs] :
         {std::pair(&actual.b, &expected.b), std::pair(&actual.b_from_a, &expected.b_from_a)}) {
      const std::string problem = difference(mine->row(i), theirs->row(i), tolerance);
      if (!problem.empty()) return fmt::format("into block b of {}, {}", i, problem);
    }
  }
  return "";
}

std::string round_problem(const Schedule& schedule, Step step, const DenseRound& expected,
                          const Claims& claims, double tolerance) {
  const std::vector<Exchange> exchanges = all_exchanges(schedule, step);
  if (const std::string problem = inconsistency(exchanges); !problem.empty()) return problem;

  std::string problem;
  const DenseRound entries = from_entries(schedule, step, problem);
  if (!problem.empty()) return problem;
  const DenseRound product = multiply_out(exchanges);
  const Matrix no_b = Matrix::Zero(schedule.size(), schedule.size());
  const Matrix& expected_b = expected.two_block() ? expected.a_from_b : no_b;
  for (const DenseRound* actual : {&product, &entries}) {
    problem = difference(actual->a, expected.a, tolerance);
    if (problem.empty()) problem = difference(actual->a_from_b, expected_b, tolerance);
    if (!problem.empty()) return (actual == &entries ? "entries(): " : "exchanges: ") + problem;
  }
  if (schedule.mixing() == Mixing::two_block) problem = block_b_problem(product, expected, tolerance);
  if (!problem.empty()) return problem;

  const Matrix whole = product.a + product.a_from_b;
  problem = sum_problem(whole, claims.sums, std::max(tolerance, 1e-12));
  if (problem.empty()) {
    const Sums needed = schedule.mixing() == Mixing::push_sum ? Sums::columns : Sums::rows;
    problem = sum_problem(whole, needed, std::max(tolerance, 1e-12));
  }
  if (problem.empty() && claims.symmetric) problem = difference(whole, whole.transpose(), 0);
  if (!problem.empty()) return problem;
  if (claims.hears > 0 && largest_degree(product, false) > claims.hears) return "a rank has too many sources";
  if (claims.tells > 0 && largest_degree(product, true) > claims.tells)
    return "a rank has too many destinations";
  return "";
}

}  // namespace

void expect_equals_reference(const std::string& text, Rank n, const Claims& claims, double tolerance) {
  const SchedulePtr schedule = make_schedule(text, n);
  const reference::DenseSchedule dense = reference::dense_schedule(text, n);
  const Step period = schedule->period();
  ASSERT_EQ(schedule->size(), n);
  ASSERT_GT(period, 0) << text << " n=" << n;
  ASSERT_FALSE(schedule->random()) << text;
  ASSERT_TRUE(schedule->mixing() != Mixing::two_block || dense(0).two_block()) << text << " n=" << n;

  std::vector<Step> steps;
  for (Step step = 0; step < std::min<Step>(period, 100); ++step) steps.push_back(step);
  steps.insert(steps.end(), {period, 2 * period + 1, 1'000'003});
  for (const Step step : steps) {
    const std::string problem = round_problem(*schedule, step, dense(step), claims, tolerance);
    ASSERT_EQ(problem, "") << text << " n=" << n << " step=" << step;
  }
  for (const Step step : {Step{0}, Step{1}, period / 2}) {
    ASSERT_EQ(difference(dense(step).a, dense(step + period).a, 0), "")
        << text << " n=" << n << ": " << period << " is no period at step " << step;
  }
}

}  // namespace starling::topology
