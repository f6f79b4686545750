#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "starling/flock/flock.h"
#include "starling/record/checkpoint_folder.h"
#include "starling/record/checkpoint_writer.h"

namespace starling::train {

/// Writes the checkpoints of all ranks of a flock into one folder, which all of them must see. One object per
/// rank, used by one thread.
class FlockCheckpoints {
 public:
  /// Creates the folder; a collective. Throws Error on all ranks if one of them cannot write to it. `name`
  /// distinguishes the collectives of several objects.
  FlockCheckpoints(const Flock& flock, const std::filesystem::path& folder, int keep, std::string name);

  bool belongs_to(const Flock& flock, const std::filesystem::path& folder, int keep) const;

  /// Writes a checkpoint; a collective. Throws the same Error on all ranks if it could not be completed.
  void write(Step step, const Labels& labels, std::span<const StatePart> parts);
  /// Copies the parts and returns; a thread writes the checkpoint. Waits first if the previous checkpoint is
  /// still being written.
  void write_in_background(Step step, const Labels& labels, std::span<const StatePart> parts);
  /// Waits for a checkpoint that is being written in the background.
  void finish();
  /// The problem of background writes since the last call, if any.
  std::optional<std::string> problem();
  /// After finish(): the first rank that could not write the last checkpoint in the background; a collective.
  std::optional<Rank> first_failed();
  std::optional<Step> last_step() const { return last_; }

 private:
  /// This rank, the first live one, writes the manifest and removes what remains of failed checkpoints.
  bool writes_manifest() const { return flock_.view().members.front() == flock_.rank(); }

  Flock flock_;
  CheckpointRunOptions options_;
  std::string name_;
  std::unique_ptr<CheckpointWriter> writer_;  // created by the first background write
  std::optional<Step> last_;                  // of the last background write
};

/// A checkpoint that all ranks are about to read.
struct OpenedCheckpoint {
  CheckpointInfo info;
  /// This rank's own file or, if the number of ranks has changed, all files.
  std::vector<CheckpointFile> files;
  bool same_ranks = true;

  /// Text for the user: what happens if the number of ranks has changed.
  std::string mean_model_notice(Rank ranks) const;
};

/// Opens the newest checkpoint of a folder, or the one of a step; empty if there is none. A collective:
/// throws Error on all ranks if one cannot read its file, if `check` throws on one, or if they see different
/// checkpoints.
std::optional<OpenedCheckpoint> open_checkpoint(Flock& flock, const std::filesystem::path& folder,
                                                std::optional<Step> step, const std::string& name,
                                                const std::function<void(const OpenedCheckpoint&)>& check);

/// Calls work() on every rank; a collective. If it throws on one rank, all ranks throw Error with its text.
void all_or_none(Flock& flock, const std::string& name, const std::function<void()>& work);

}  // namespace starling::train
