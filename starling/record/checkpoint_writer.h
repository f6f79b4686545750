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

namespace starling {

/// Writes one rank's checkpoints while the rank goes on: save() copies the state, a thread does the rest.
/// What goes wrong there (a full disk, a folder that is gone, a rank that died) costs that checkpoint and
/// nothing else; the next save() tries again. For one thread of the owner's, except where said.
class CheckpointWriter {
 public:
  CheckpointWriter(CheckpointRunOptions options, Rank rank);
  /// Waits for a checkpoint that is being written, but for other ranks' files only a few seconds.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Copies the parts and returns; from then on they may change. There is memory for one copy, which is kept:
  /// when the last checkpoint is still being written, this first waits for it. `members` are the ranks that
  /// write this step; the first of them completes it.
  void save(Step step, const Labels& labels, std::span<const StatePart> parts, std::span<const Rank> members);

  /// Whether a checkpoint is being written; save() would wait. From any thread.
  bool busy() const;
  /// Waits until none is. From any thread.
  void finish();
  /// The step of the last one that went well: this rank's file is there, on rank 0 the whole checkpoint. From
  /// any thread.
  std::optional<Step> last_saved() const;
  /// What went wrong since it was last asked; the owner shows it. From any thread.
  std::optional<std::string> problem();

 private:
  void work(const std::stop_token& stop);
  void write(const std::stop_token& stop);
  void take(std::span<const StatePart> parts);

  CheckpointRun run_;
  Rank rank_;

  // Belong to the owner while not busy, to the thread while busy.
  Step step_ = 0;
  Labels labels_;
  std::vector<Rank> members_;
  std::vector<StatePart> parts_;  // their bytes lie in memory_
  std::vector<std::byte> memory_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool busy_ = false;
  std::optional<Step> last_saved_;
  std::optional<std::string> problem_;
  std::jthread thread_;
};

}  // namespace starling
