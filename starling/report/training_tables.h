#pragma once

#include "starling/report/run_groups.h"
#include "starling/report/table.h"

namespace starling::report {

/// "98.97 ± 0.05 %", or "-".
std::string accuracy_text(const RunCell& cell);

/// One row per entry: accuracy as mean ± sample standard deviation, time, bytes, how time was spent.
Table training_table(const RunTask& task);

/// All learning rates of all groups, with the chosen ones marked.
Table learning_rate_table(const RunTask& task);

/// One row per run, with its command.
Table run_table(const std::vector<RunLog>& runs);

/// Settings, versions and machines, with all values that occur.
Table settings_table(const std::vector<RunLog>& runs);

/// A sentence that says how the learning rate of each row was chosen.
std::string learning_rate_rule();

}  // namespace starling::report
