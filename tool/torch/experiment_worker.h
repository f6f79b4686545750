#pragma once

#include <string>
#include <vector>

#include "starling/train/experiment.h"

namespace starling::tool {

/// The command line that makes this program one rank of an experiment; rank 0 writes a line per report.
std::vector<std::string> experiment_command(const Experiment& experiment, int threads);
void be_experiment_worker(const std::string& experiment, int threads);
Report read_report(const std::string& line);

}  // namespace starling::tool
