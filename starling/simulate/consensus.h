#pragma once

#include <functional>
#include <string>
#include <vector>

#include "starling/topology/schedule.h"

namespace starling::simulate {

/// Options of a run of average consensus: every node starts with random normal values and mixes until all
/// agree.
struct ConsensusOptions {
  double tolerance = 1e-10;    // on ||x_t - mean|| / ||x_0 - mean||
  int dim = 1;                 // values per rank
  std::uint64_t seed = 0;      // of the start values
  Step max_steps = 1'000'000;  // beyond this, steps are computed from the spectrum if possible
  /// Called from time to time with the step and the current error; return false to stop early.
  std::function<bool(Step, double)> progress;
};

struct ConsensusPoint {
  Step step = 0;
  double error = 1;
  double messages = 0;  // sent so far, in units of one model
};

struct ConsensusResult {
  std::string topology;
  Rank n = 1;
  enum class Outcome {
    reached,    // by running it
    computed,   // by the eigenvalues of a static circulant matrix and the start's Fourier transform
    estimated,  // from rho alone: ln(tolerance) / ln(rho)
    stopped,    // neither reached nor computable
  } outcome = Outcome::stopped;
  Step steps = 0;
  double error = 1;     // at the end
  double messages = 0;  // in total
  double seconds = 0;   // spent on the rounds that were run
  Step steps_run = 0;
  std::vector<ConsensusPoint> curve;  // every step at first, then increasingly rare
};

const char* to_string(ConsensusResult::Outcome outcome);

ConsensusResult run_consensus(const SchedulePtr& schedule, const ConsensusOptions& options = {});

}  // namespace starling::simulate

namespace starling {
using simulate::ConsensusOptions;
using simulate::ConsensusPoint;
using simulate::ConsensusResult;
using simulate::run_consensus;
}  // namespace starling
