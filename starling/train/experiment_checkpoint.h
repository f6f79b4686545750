#pragma once

#include <memory>
#include <optional>

#include "starling/train/experiment.h"
#include "starling/train/flock_checkpoints.h"
#include "starling/train/trainer.h"

namespace starling::train {

/// The position of a run, in addition to its trainer's state.
struct RunPosition {
  int epoch = 0;
  std::int64_t step = 0;    // steps of the epoch already done
  RunReport totals;         // seconds, bytes and so on so far
  std::uint64_t bytes = 0;  // sent by this rank
};

/// Writes and reads the checkpoints of a run; one object per rank.
class ExperimentCheckpoints {
 public:
  /// A collective.
  ExperimentCheckpoints(Flock& flock, const Experiment& experiment, const CheckpointOptions& options);

  /// Whether a checkpoint is due in the step that ended at this point, counted in epochs; true once per
  /// checkpoint.
  bool is_due(double epoch);
  /// Copies the state and returns while a thread writes it.
  void save(Trainer& trainer, const RunPosition& position);

  struct Restored {
    RunPosition position;
    std::string reset;  // text that says what was reset
  };
  /// Restores the checkpoint to resume from, if there is one; a collective.
  std::optional<Restored> resume(Trainer& trainer);

  /// Waits for the checkpoint that is being written.
  void finish();
  /// After finish(): the first rank whose last checkpoint could not be written; a collective.
  std::optional<RunNotSaved> not_saved();
  /// Prints the problems since the last call; training continues without that checkpoint.
  void print_problem();

 private:
  void check_settings(const Labels& saved, const std::string& where) const;

  Flock& flock_;
  const Experiment& experiment_;
  CheckpointOptions options_;
  std::unique_ptr<FlockCheckpoints> writer_;  // null without a folder
  double due_ = 0;                            // the number of checkpoints due so far
};

}  // namespace starling::train
