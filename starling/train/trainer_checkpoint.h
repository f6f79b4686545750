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

/// Saves and restores a trainer's whole state; see the functions of these names in Trainer, of which it is a
/// part.
class TrainerCheckpoint {
 public:
  TrainerCheckpoint(Replica& replica, TrainingStep& step) : replica_(replica), step_(step) {}
  /// Waits for a checkpoint that is being written, unless an exception is on its way.
  ~TrainerCheckpoint();

  void save(const std::filesystem::path& folder, const SaveOptions& options);
  std::optional<Resumed> resume(const std::filesystem::path& folder, std::optional<Step> step);
  /// The flock has changed: the next save() begins with the new one.
  void flock_changed();

  void save_parts(SavedParts& parts);
  void restore(const CheckpointFile& file);
  void restore_mean(std::span<const CheckpointFile> files);

 private:
  /// Throws InvalidArgument on all ranks if they do not save the same step into the same folder; a
  /// collective.
  void check_same_save(const std::string& prefix, const std::filesystem::path& folder,
                       const SaveOptions& options) const;
  void check_model(const CheckpointFile& file) const;
  void check_everything(const CheckpointFile& file);
  void check_opened(const OpenedCheckpoint& opened);
  void log_changed_options(const CheckpointFile& file) const;
  void log_problem();

  Replica& replica_;
  TrainingStep& step_;
  std::unique_ptr<FlockCheckpoints> checkpoints_;  // of the last save()
};

}  // namespace starling::train
