#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "starling/base/types.h"

// The log of a training run: `metrics.jsonl`, one JSON object per line, written during the run.
//
//     out << to_line(header) << std::flush;
//     out << to_line(report) << std::flush;   // repeatedly
//     out << to_line(RunEnd{939, 30.1}) << std::flush;
//
// Numbers that are not finite are written as null and read as NaN.

namespace starling::record {

/// One setting of an experiment, its value as text: `0.2`, `true`, `mnist`.
struct RunSetting {
  std::string name;
  std::string value;

  friend bool operator==(const RunSetting&, const RunSetting&) = default;
};

/// The first line: the experiment, the software and the machine.
struct RunHeader {
  std::string starling;  // versions
  std::string torch;
  std::string date;     // 2026-11-15
  std::string command;  // the exact command line
  std::string machine;
  std::string device;  // that the first worker trains on, as in torch: "cpu", "cuda:0"
  int workers = 0;
  std::int64_t parameters = 0;  // of one model
  /// All settings that determine the result, and no others: runs that differ only in the seed are
  /// repetitions.
  std::vector<RunSetting> experiment = {};
  /// The canonical form of settings with several spellings (`base`, `base(k=1)`), with defaults filled in,
  /// but without values derived from the seed. Empty in logs of earlier versions.
  std::vector<RunSetting> canonical = {};

  /// The setting as the user gave it; "" if there is no such setting.
  std::string setting(std::string_view name) const;
  /// The setting in canonical form, if known.
  std::string canonical_setting(std::string_view name) const;
  /// The optimizer's `lr`, if known.
  std::optional<double> learning_rate() const;
};

/// An optimizer without its `lr`, to compare learning rates.
std::string without_learning_rate(const std::string& optimizer);

/// The metrics after some steps.
struct RunReport {
  Step step = 0;
  double epoch = 0;          // 1.5: in the middle of the second
  double seconds = 0;        // of training so far
  double loss = 0;           // mean over the ranks since the last report
  double learning_rate = 0;  // now
  double images_per_second = 0;
  double consensus_distance = 0;
  std::uint64_t bytes_sent = 0;  // payload that all ranks together sent so far
  // Seconds so far, mean over the ranks; their sum is about `seconds`.
  double computing = 0;
  double waiting = 0;
  double combining = 0;
  // Asynchronous methods: the staleness of the models used so far, in steps; mean and maximum.
  double staleness = 0;
  double staleness_most = 0;
  int workers = 0;      // alive
  int taking_part = 0;  // in the step
  // At the end of an epoch: the mean model on the test data, and the ranks' own models.
  std::optional<double> test_accuracy = {};  // 0 to 1
  std::optional<double> test_loss = {};
  std::optional<double> local_accuracy = {};  // mean over the ranks, on some of the test data
  std::optional<double> local_accuracy_least = {};
  std::optional<double> local_accuracy_most = {};
  std::optional<double> local_mean_accuracy = {};  // of the mean model on the same samples
};

/// The run resumed from a checkpoint of `step`; earlier reports of later steps are void. `seconds` and
/// `bytes_sent` of later reports continue from the checkpoint's.
struct RunResume {
  Step step = 0;
  std::string command = {};
  std::string date = {};
  std::string reset = {};  // what was reset instead of restored, as text
};

/// A worker died.
struct PeerFailure {
  Step step = 0;
  Rank rank = 0;
};

/// The last checkpoint of a finished run could not be written; the problems were reported when they occurred.
struct RunNotSaved {
  Step step = 0;  // of that checkpoint
  Rank rank = 0;  // the first that could not write it
};

/// The first loss that was not a finite number: its rank, and its step, counted from 1.
struct RunDivergence {
  Step step = 0;
  Rank rank = 0;

  /// "rank 2's loss was not a finite number in step 41"
  std::string text() const;
};

/// The last line of a run that finished, or was stopped because it diverged.
struct RunEnd {
  Step step = 0;
  double seconds = 0;
  std::optional<RunDivergence> diverged = {};
  bool already = false;  // the resumed run had already finished; not logged
};

/// Each returns a complete line with its newline.
std::string to_line(const RunHeader& header);
std::string to_line(const RunReport& report);
std::string to_line(const RunResume& resume);
std::string to_line(const PeerFailure& loss);
std::string to_line(const RunNotSaved& missing);
std::string to_line(const RunEnd& end);

/// A whole log, as read from a file.
struct RunLog {
  std::string path = {};
  RunHeader header = {};
  std::vector<RunReport> reports = {};  // without the void ones
  std::vector<RunResume> resumes = {};
  std::vector<PeerFailure> lost = {};
  std::optional<RunEnd> end = {};
  bool cut_off = false;  // the run was killed while it wrote the last line, which is skipped

  bool finished() const { return end.has_value(); }
  /// The last report with a test accuracy, or null.
  const RunReport* last_evaluation() const;
};

/// Reads a log. Throws Error that names the file, the line and the problem. Ignores unknown keys and kinds of
/// lines.
RunLog read_run_log(const std::string& path);

/// Removes a truncated last line of a killed run, so that a resumed run can append. False if the last line is
/// complete.
bool mend_run_log(const std::string& path);

}  // namespace starling::record

namespace starling {
using record::read_run_log;
using record::RunHeader;
using record::RunLog;
using record::RunReport;
using record::to_line;
}  // namespace starling
