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

namespace starling::record {

/// Options of a CheckpointRun; equal on all ranks.
struct CheckpointRunOptions {
  std::filesystem::path folder;
  std::string run;  // the run's token: equal on all ranks, unique per run; letters, digits, - and _
  Rank workers = 1;
  std::size_t keep = 3;                    // how many complete checkpoints to keep, at least 1
  std::chrono::milliseconds wait{60'000};  // complete()'s time limit for the other ranks' files
  /// Whether a rank is known to be dead, so that no rank waits for its file. May be empty; called on the
  /// writing threads.
  std::function<bool(Rank)> gone = {};
};

/// Publishes the checkpoints in a folder that lack only the last rename because their run was killed, and
/// removes the unfinished ones. To be called while no run writes there. Throws Error.
void tidy_checkpoints(const std::filesystem::path& folder);

/// Writes the checkpoints of one run into a folder. Each rank calls write() independently or, in steps of its
/// own, write_rank; rank 0 then also begin and complete. Files are in step-N.part-<run> until the manifest is
/// written; then that folder is renamed to step-N. A crash at any point leaves complete checkpoints intact.
/// Functions throw Error unless noexcept.
class CheckpointRun {
 public:
  explicit CheckpointRun(CheckpointRunOptions options);

  const CheckpointRunOptions& options() const { return options_; }

  /// Writes this rank's part of the checkpoint of a step that `members` write; the first member completes it.
  /// After a failure the last rank to finish removes the remaining files.
  void write(Step step, Rank rank, const Labels& labels, std::span<const StatePart> parts,
             std::span<const Rank> members, const std::stop_token& stop = {}) const;

  /// Rank 0: creates the folder and removes unfinished checkpoints: of killed runs, and of earlier steps of
  /// this run. Other ranks need not wait for it, since files of this step are not touched.
  void begin(Step step) const;

  /// Removes unfinished checkpoints of this run, for example after a rank died. Call it when no rank writes
  /// any more.
  void remove_unfinished() const;

  /// Writes this rank's file; adds the labels run, step, rank and workers.
  void write_rank(Step step, Rank rank, const Labels& labels, std::span<const StatePart> parts) const;

  /// Called instead of write_rank after a failure: tells complete() that there will be no file.
  void give_up_rank(Step step, Rank rank, const std::string& why) const noexcept;

  /// Rank 0: waits for the files of all members, writes the manifest, and removes old checkpoints. If a file
  /// is missing or `stop` is requested, removes the files of this step and throws an Error that says why;
  /// write() of the missing ranks then removes the folder.
  CheckpointInfo complete(Step step, std::span<const Rank> members, const Labels& labels,
                          const std::stop_token& stop = {}) const;

 private:
  std::filesystem::path working_folder(Step step) const;
  /// Instead of complete(): removes the files of the step, and the folder if no rank writes there any more.
  void abandon(Step step, std::span<const Rank> members) const noexcept;
  void remove_if_abandoned(Step step, std::span<const Rank> members) const noexcept;
  void await(Step step, Rank member, std::chrono::steady_clock::time_point deadline,
             const std::stop_token& stop) const;
  void remove_old(Step step) const;

  CheckpointRunOptions options_;
  CheckpointFolder folder_;
};

}  // namespace starling::record

namespace starling {
using record::CheckpointRun;
using record::CheckpointRunOptions;
}  // namespace starling
