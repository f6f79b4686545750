#pragma once

#include <optional>
#include <string>
#include <vector>

#include "starling/record/run_log.h"

namespace starling::report {

/// How a run ended.
enum class RunOutcome { finished, unfinished, diverged };
RunOutcome outcome_of(const RunLog& run);
std::string to_string(RunOutcome outcome);

/// The last test accuracy that is a number.
std::optional<double> final_accuracy(const RunLog& run);

/// Runs that differ only in their seeds.
struct RunCell {
  std::vector<const RunLog*> runs;
  std::optional<double> learning_rate;
  /// The mean of the final accuracies. A diverged or unfinished run counts with its last accuracy, or 0 if it
  /// has none; empty if no run has one.
  std::optional<double> mean;
  /// The sample standard deviation; empty for a single run.
  std::optional<double> deviation;

  std::size_t ended(RunOutcome outcome) const;
  /// The criterion for comparing cells: the mean accuracy, with diverged runs counting 0; below all others if
  /// every run diverged.
  double merit() const;
  /// The mean of the runs' reports, at the steps that all of them have.
  std::vector<RunReport> mean_reports() const;
};

/// Runs that differ only in their seeds and learning rates, whatever the spelling of their settings.
struct RunGroup {
  std::string label;                  // distinguishes it from the other groups
  std::vector<std::string> distinct;  // the values of RunTask::distinct
  std::vector<RunCell> cells;         // by learning rate
  std::size_t chosen = 0;  // index of the best cell; of equal ones that with the larger learning rate

  const RunCell& best() const { return cells[chosen]; }
};

/// Runs of one model on one data set.
struct RunTask {
  std::string name;                   // such as "lenet on mnist"
  std::vector<std::string> distinct;  // the settings in which groups differ, which name the rows
  std::vector<RunGroup> groups;       // in the order of their first runs

  /// The entries to show: every group at its best learning rate, or every learning rate of a single group.
  struct Member {
    std::string label;
    const RunGroup* group;
    const RunCell* cell;
  };
  std::vector<Member> entries() const;
  bool compares_learning_rates() const;
};

/// The result refers to the runs, which must outlive it.
std::vector<RunTask> group_runs(const std::vector<RunLog>& runs);

/// The settings that name a run's group, as given: all but the seed and the learning rate, plus the number of
/// workers.
std::vector<RunSetting> group_settings(const RunLog& run);

}  // namespace starling::report
