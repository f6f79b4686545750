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

/// Runs that differ by their seeds only.
struct RunCell {
  std::vector<const RunLog*> runs;
  std::optional<double> learning_rate;
  /// Of the final accuracies. A diverged or unfinished run counts with its last accuracy, and with 0 where it
  /// has none; nothing where no run has one.
  std::optional<double> mean;
  /// Sample standard deviation; nothing for a single run.
  std::optional<double> deviation;

  std::size_t ended(RunOutcome outcome) const;
  /// By which cells are compared: the mean accuracy where diverged runs count 0; below all others where every
  /// run diverged.
  double merit() const;
  /// The mean over the runs of their reports, at the steps that all of them have.
  std::vector<RunReport> mean_reports() const;
};

/// Runs that differ by their seeds and learning rates only, whatever the spelling of their settings.
struct RunGroup {
  std::string label;                  // what tells it from the other groups
  std::vector<std::string> distinct;  // the values of RunTask::distinct
  std::vector<RunCell> cells;         // by learning rate
  std::size_t chosen = 0;             // the best merit; of equal ones the larger learning rate

  const RunCell& best() const { return cells[chosen]; }
};

/// Runs of one model on one data set.
struct RunTask {
  std::string name;                   // lenet on mnist
  std::vector<std::string> distinct;  // the settings by which groups differ, by which rows are named
  std::vector<RunGroup> groups;       // in the order of their first runs

  /// What to show: every group at its best learning rate, or every learning rate of a single group.
  struct Member {
    std::string label;
    const RunGroup* group;
    const RunCell* cell;
  };
  std::vector<Member> entries() const;
  bool compares_learning_rates() const;
};

/// The runs stay where they are and must outlive the result.
std::vector<RunTask> group_runs(const std::vector<RunLog>& runs);

/// The settings of a run that name its group, as they were given: all but the seed and the learning rate, and
/// how many workers.
std::vector<RunSetting> group_settings(const RunLog& run);

}  // namespace starling::report
