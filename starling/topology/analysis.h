#pragma once

#include <optional>
#include <string>
#include <vector>

#include "starling/topology/cost.h"
#include "starling/topology/registry.h"

namespace starling::topology {

/// A number and the method that found it.
struct Finding {
  double value = 0;
  std::string how;            // "formula", "circulant eigenvalues", "eigenvalues", "exact average", "sampled"
  double standard_error = 0;  // if the number was sampled
};

/// The number of rounds after which the average is exact.
struct Exactness {
  Step rounds = 0;
  bool from_any_step = false;  // otherwise only from the beginning of a period
};

/// The known properties of a topology. Fields that would cost more than `AnalysisOptions` allows stay empty.
struct Analysis {
  std::string name;
  Rank n = 1;
  Step period = 1;  // 0: never repeats
  bool random = false;
  Mixing mixing = Mixing::average;

  std::optional<bool> row_stochastic;
  std::optional<bool> column_stochastic;
  std::optional<bool> symmetric;
  std::optional<bool> nonnegative;
  std::optional<bool> connected;  // the union of a period's rounds

  /// ||W - J||_2 of a static W; the T-th root of the norm of a period's product; the mean-square rho of a
  /// random family.
  std::optional<Finding> rho;
  bool rho_is_mean_square = false;
  std::vector<double> round_rho;  // of each round of a period
  // |lambda_2|, if W is not doubly stochastic and rho therefore says little
  std::optional<double> second_modulus;
  std::optional<double> lambda_min;  // of a static symmetric W

  std::optional<Exactness> exact;
  std::optional<double> messages_per_exact;  // of one model's size, from step 0 until the average is exact
  // if false, an empty `exact` means only that n or the period is too large to check
  bool exactness_run = false;
  StepCost cost;
};

struct AnalysisOptions {
  std::int64_t matrix_limit = 20'000;        // largest n whose matrices are examined
  std::int64_t circulant_limit = 1'000'000;  // largest n whose circulant eigenvalues are computed
  std::int64_t exactness_limit = 10'000;     // largest n whose exactness is proved by running it
};

Analysis analyze(const SchedulePtr& schedule, const AnalysisOptions& options = {});

/// Computes rho alone, the part of `analyze` that comparisons and simulations need.
std::optional<Finding> find_rho(const SchedulePtr& schedule, const AnalysisOptions& options = {});

/// The factor by which `rounds` steps together shrink a deviation from the mean: ||W_T ... W_1 - J||_2 over
/// one period T of a schedule; rounds = 1 for static and random schedules; 0 if the average is then exact.
struct Contraction {
  Step rounds = 1;
  double rho = 0;
};
std::optional<Contraction> find_contraction(const SchedulePtr& schedule, const Finding& rho,
                                            const AnalysisOptions& options = {});

/// n^3 (rounds / (1 - rho))^power: the order of the number of steps until a method is as good as all-reduce.
/// The power is 2 for DSGD and 6 for gradient tracking. 0 if every step's average is exact; empty if ranks
/// never agree.
std::optional<double> transient_steps(const Contraction& contraction, Rank n, int power);

/// Runs the schedule on random values until their average is exact, from every phase of its period. Empty if
/// it never is, or if the period is too long to run.
std::optional<Exactness> find_exactness(const SchedulePtr& schedule);

}  // namespace starling::topology

namespace starling {
using topology::Analysis;
using topology::AnalysisOptions;
using topology::analyze;
using topology::Contraction;
using topology::Exactness;
using topology::find_contraction;
using topology::find_exactness;
using topology::find_rho;
using topology::Finding;
using topology::transient_steps;
}  // namespace starling
