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
  std::string method, topology;  // as typed; no topology where the method uses none
  std::string refusal = {};      // why it could not run
  TrainingResult result = {};

  std::string label() const { return topology.empty() ? method : method + ", " + topology; }
};

/// Methods and topologies on one problem.
struct TrainingRace {
  Rank n = 1;
  std::size_t dim = 1;
  std::string problem;
  std::string time_file;     // empty: the default machines
  bool least_known = false;  // of the objective: gaps are to it
  TrainingOptions options;
  std::vector<RaceRun> runs;
  /// Of a single run, where asked for: every node's iterate, [step][node][coordinate].
  std::optional<std::vector<std::vector<std::vector<double>>>> trace;
};

Table race_table(const TrainingRace& race);
void write_race(std::ostream& out, const TrainingRace& race);
/// As a self-contained HTML page.
std::string race_page(const TrainingRace& race, const std::string& command, const std::string& date);

}  // namespace starling::tool
