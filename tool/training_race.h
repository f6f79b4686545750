#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "starling/report/table.h"
#include "starling/simulate/training.h"

namespace starling::tool {

/// One method on one topology.
struct RaceRun {
  std::string method, topology;  // as typed; no topology if the method uses none
  std::string refusal = {};      // why it could not run
  TrainingResult result = {};

  std::string label() const { return topology.empty() ? method : method + ", " + topology; }
};

/// A comparison of methods and topologies on one problem.
struct TrainingRace {
  Rank n = 1;
  std::size_t dim = 1;
  std::string problem;
  int seeds = 1;             // results are means over this many runs, each with other data
  std::string time_file;     // empty: the default machines
  bool least_known = false;  // the objective's least value is known, so gaps can be computed
  TrainingOptions options;
  std::vector<RaceRun> runs;
  /// For a single run, if requested: every node's iterate, [step][node][coordinate].
  std::optional<std::vector<std::vector<std::vector<double>>>> trace;
};

/// The pointwise mean of the same run over several seeds.
TrainingResult mean_of(const std::vector<TrainingResult>& results);

/// The centralized run that the others are compared with, if there is one.
const RaceRun* baseline_of(const TrainingRace& race);
/// Transient iterations: the step from which on the nodes' smoothed mean square distance to the minimizer
/// stays within 10 % of the baseline's; empty if it never does.
std::optional<Step> catches_up(const RaceRun& run, const RaceRun& baseline);

Table race_table(const TrainingRace& race);
void write_race(std::ostream& out, const TrainingRace& race);
/// The comparison as a self-contained HTML page.
std::string race_page(const TrainingRace& race, const std::string& command, const std::string& date);

}  // namespace starling::tool
