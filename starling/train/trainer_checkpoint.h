#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "starling/method/saved_state.h"
#include "starling/train/flock_checkpoints.h"
#include "starling/train/trainer.h"
#include "starling/train/training_step.h"

namespace starling::train {

/// Saves and restores a trainer's whole state; implements the functions with these names in Trainer. Part of
/// a Trainer.
class TrainerCheckpoint {
 public:
  TrainerCheckpoint(Replica& replica, TrainingStep& step) : replica_(replica), step_(step) {}
  /// Waits for a checkpoint that is being written, unless an exception is being handled.
  ~TrainerCheckpoint();

  void save(const std::filesystem::path& folder, const SaveOptions& options);
  std::optional<Resumed> resume(const std::filesystem::path& folder, std::optional<Step> step);
  /// Call it when the flock has changed: the next save() uses the new one.
  void flock_changed();

  void save_parts(SavedParts& parts);
  void restore(const CheckpointFile& file);
  void restore_mean(std::span<const CheckpointFile> files);

 private:
  /// Throws InvalidArgument on all ranks unless they save the same step to the same folder; a collective.
  void check_same_save(const std::string& prefix, const std::filesystem::path& folder,
                       const SaveOptions& options) const;
  void check_model(const CheckpointFile& file) const;
  void check_everything(const CheckpointFile& file);
  void check_opened(const OpenedCheckpoint& opened);
  void log_changed_options(const CheckpointFile& file) const;
  void log_problem();

  Replica& replica_;
  TrainingStep& step_;
  std::unique_ptr<FlockCheckpoints> checkpoints_;  // for the last save()
};

}  // namespace starling::train
