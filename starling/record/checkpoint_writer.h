#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "starling/record/checkpoint_run.h"
#include "starling/record/state_snapshot.h"

namespace starling::record {

/// Writes one rank's checkpoints in the background: save() copies the state, a thread writes it. A failure
/// (full disk, missing folder, dead rank) only loses that checkpoint; the next save() tries again. To be used
/// by one thread, except where noted.
class CheckpointWriter {
 public:
  CheckpointWriter(CheckpointRunOptions options, Rank rank);
  /// Waits until the current checkpoint is written, but only a few seconds for other ranks' files.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Copies the parts and returns; they may change afterwards. For parts on a device the copy is enqueued,
  /// and they may change by work enqueued afterwards. Keeps memory for one copy: waits first if the previous
  /// checkpoint is still being written. `members` are the ranks that write this step; the first
  /// completes it.
  void save(Step step, const Labels& labels, std::span<const StatePart> parts, std::span<const Rank> members);

  /// Whether a checkpoint is being written, so that save() would wait. From any thread.
  bool busy() const;
  /// Waits until no checkpoint is being written. From any thread.
  void finish();
  /// Removes what is left of failed checkpoints; to be called on one rank, after finish() on all.
  void remove_unfinished();
  /// The step of the last success: of this rank's file, on rank 0 of the whole checkpoint. From any thread.
  std::optional<Step> last_saved() const;
  /// The failure since the last call, if any, to be shown by the owner. From any thread.
  std::optional<std::string> problem();

 private:
  void work(const std::stop_token& stop);

  CheckpointRun run_;
  Rank rank_;

  // Owned by the caller's thread while not busy, by the writing thread while busy.
  Step step_ = 0;
  Labels labels_;
  std::vector<Rank> members_;
  StateSnapshot state_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool busy_ = false;
  std::optional<Step> last_saved_;
  std::optional<std::string> problem_;
  std::jthread thread_;
};

}  // namespace starling::record

namespace starling {
using record::CheckpointWriter;
}  // namespace starling
