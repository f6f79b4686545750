#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>

#include "starling/base/types.h"
#include "starling/record/checkpoint_file.h"
#include "starling/record/checkpoint_folder.h"

namespace starling {

struct CheckpointRunOptions {
  std::filesystem::path folder;
  std::string run;  // the run's token: the same on all ranks, another for every run; letters, digits, - and _
  Rank workers = 1;
  std::size_t keep = 3;                    // complete checkpoints, at least 1
  std::chrono::milliseconds wait{60'000};  // how long complete() waits for the other ranks' files
  /// Whether a rank is known to be dead, so that complete() need not wait for it. May be empty; is called
  /// from the thread that completes.
  std::function<bool(Rank)> gone = {};
};

/// How the ranks of one run write checkpoints into a folder. Each rank calls write_rank at its own time, rank
/// 0 also begin and complete. Files lie in step-N.part-<run> until the manifest is there; then that folder
/// becomes step-N. Whatever dies in between, complete checkpoints stay as they are. All functions throw
/// Error.
class CheckpointRun {
 public:
  explicit CheckpointRun(CheckpointRunOptions options);

  const CheckpointRunOptions& options() const { return options_; }

  /// Rank 0: makes the folder and removes what runs that were killed have left unfinished. Other ranks need
  /// not wait for it: nothing of this run is touched.
  void begin(Step step) const;

  /// Writes this rank's file; adds the labels run, step, rank and workers.
  void write_rank(Step step, Rank rank, const Labels& labels, std::span<const StatePart> parts) const;

  /// Instead of write_rank: tells complete() that there will be no file.
  void give_up_rank(Step step, Rank rank, const std::string& why) const noexcept;

  /// Rank 0, instead of complete(): removes what there is of the step, unless that is complete.
  void abandon(Step step) const noexcept;

  /// Rank 0: waits until all members' files are there, writes the manifest, and removes all but the newest
  /// checkpoints. When a file does not come, or `stop` is requested, nothing of this step is left, and an
  /// Error says why.
  CheckpointInfo complete(Step step, std::span<const Rank> members, const Labels& labels,
                          const std::stop_token& stop = {}) const;

 private:
  std::filesystem::path working_folder(Step step) const;
  void await(Step step, Rank member, std::chrono::steady_clock::time_point deadline,
             const std::stop_token& stop) const;
  void publish(const std::filesystem::path& working, Step step) const;
  void remove_old(Step step) const;

  CheckpointRunOptions options_;
  CheckpointFolder folder_;
};

}  // namespace starling
