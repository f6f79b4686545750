#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/record/checkpoint_file.h"

namespace starling {

/// A complete checkpoint: what its manifest says.
struct CheckpointInfo {
  struct File {
    Rank rank = 0;
    std::string name;
    CheckpointFileMark mark;
  };

  Step step = 0;
  std::int64_t number = 0;  // how many were completed in this folder before it: the order of age
  Rank workers = 0;         // of the run; fewer files than that when some had died
  std::string run;          // the run's token
  Labels labels;
  std::vector<File> files;  // one per member, by rank
  std::filesystem::path folder;
  std::string problem;  // why it cannot be used, as far as sizes tell; empty where it seems whole

  std::string name() const;  // "step-000000120"
  std::uint64_t bytes() const;
  bool has(Rank rank) const;
};

/// A folder of checkpoints, for reading. A checkpoint exists when its manifest does; who writes them is
/// CheckpointRun. Errors about a bad checkpoint name the file, and the last one before it that is whole.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& path() const { return folder_; }
  /// All complete ones, newest first: the one completed last, since a run that went back repeats steps.
  std::vector<CheckpointInfo> list() const;
  /// The newest; nothing where there is none. Throws Error when it is bad, rather than go further back
  /// unasked.
  std::optional<CheckpointInfo> newest() const;
  /// The newest whose every byte is right.
  std::optional<CheckpointInfo> newest_good() const;
  /// Throws Error when there is none of that step, or it is bad.
  CheckpointInfo find(Step step) const;
  /// find(), and reads and verifies all of its files.
  CheckpointInfo check(Step step) const;
  /// A rank's file, every byte of it verified.
  CheckpointFile open(const CheckpointInfo& info, Rank rank) const;

 private:
  const CheckpointInfo& usable(const std::vector<CheckpointInfo>& all, std::size_t index) const;

  std::filesystem::path folder_;
};

/// "step-000000120".
std::string checkpoint_name(Step step);
/// "rank-3.state".
std::string checkpoint_file_name(Rank rank);
/// The step of "step-000000120" and of "step-000000120.part-...", which is such a folder while it is written.
std::optional<Step> step_of_checkpoint(const std::string& name);

inline constexpr const char* kCheckpointManifest = "manifest.json";
inline constexpr const char* kCheckpointPart = ".part-";

}  // namespace starling
