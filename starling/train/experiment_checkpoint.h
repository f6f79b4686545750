#pragma once

#include <memory>
#include <optional>

#include "starling/record/checkpoint_folder.h"
#include "starling/record/checkpoint_writer.h"
#include "starling/train/experiment.h"
#include "starling/train/trainer.h"

namespace starling {

/// Where a run is, beside what its trainer knows.
struct RunPosition {
  int epoch = 0;
  std::int64_t step = 0;    // of the epoch, already done
  RunReport totals;         // seconds, bytes and so on until here
  std::uint64_t bytes = 0;  // that this rank sent
};

/// Writes and reads the checkpoints of a run; one object per rank.
class ExperimentCheckpoints {
 public:
  /// A collective.
  ExperimentCheckpoints(Flock& flock, const Experiment& experiment, const CheckpointOptions& options);

  /// Copies the state, and returns while it is being written.
  void save(Trainer& trainer, const RunPosition& position);
  /// Puts back what is to be resumed, if there is something; a collective.
  struct Resumed {
    RunPosition position;
    std::string reset;  // what had to begin anew, in words
  };
  std::optional<Resumed> resume(Trainer& trainer);
  /// Waits for what is being written.
  void finish();
  /// After finish(): the first rank whose last checkpoint could not be written; a collective.
  std::optional<RunNotSaved> not_saved();
  /// What went wrong with writing since this was last asked.
  std::optional<std::string> problem() { return writer_ ? writer_->problem() : std::nullopt; }

 private:
  void check_settings(const Labels& saved, const std::string& where) const;
  std::optional<CheckpointInfo> chosen() const;
  /// What one rank cannot do, none does: everybody throws when somebody has a problem, or another step.
  void agree(const std::string& problem, Step step);
  /// What it throws.
  static std::string problem_of(const std::function<void()>& work);

  Flock& flock_;
  const Experiment& experiment_;
  CheckpointOptions options_;
  std::optional<CheckpointFolder> folder_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::optional<Step> last_;  // that was to be saved
};

}  // namespace starling
