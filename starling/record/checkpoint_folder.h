#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "starling/base/types.h"
#include "starling/record/checkpoint_file.h"

namespace starling::record {

/// A complete checkpoint, as described by its manifest.
struct CheckpointInfo {
  struct File {
    Rank rank = 0;
    std::string name;
    CheckpointFileMark mark;
  };

  Step step = 0;
  std::int64_t number = 0;  // checkpoints completed in this folder before: defines the age
  Rank workers = 0;         // of the run; there are fewer files if some had died
  std::string run;          // the run's token
  Labels labels;
  std::vector<File> files;  // one per member, by rank
  std::filesystem::path folder;
  std::string problem;  // why it is unusable, judged by file sizes; empty if it seems intact

  std::string name() const;  // "step-000000120"
  std::uint64_t bytes() const;
  bool has(Rank rank) const;
};

/// Reads a folder of checkpoints (CheckpointRun writes them). A checkpoint exists if its manifest does.
/// Errors about a damaged checkpoint name the file and the last intact checkpoint before it.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& path() const { return folder_; }
  /// All complete checkpoints, the last completed first (steps may repeat if a run resumed from an earlier
  /// one).
  std::vector<CheckpointInfo> list() const;
  /// The newest, if there is one. Throws Error if it is damaged, instead of silently returning an older one.
  std::optional<CheckpointInfo> newest() const;
  /// The newest that is completely intact; verifies all files.
  std::optional<CheckpointInfo> newest_good() const;
  /// Throws Error if there is none of that step, or if it is damaged.
  CheckpointInfo find(Step step) const;
  /// find(), and reads and verifies all of its files.
  CheckpointInfo check(Step step) const;
  /// Opens a rank's file and verifies it completely.
  CheckpointFile open(const CheckpointInfo& info, Rank rank) const;

 private:
  const CheckpointInfo& usable(const std::vector<CheckpointInfo>& all, std::size_t index) const;

  std::filesystem::path folder_;
};

/// "step-000000120".
std::string checkpoint_name(Step step);
/// "rank-3.state".
std::string checkpoint_file_name(Rank rank);
/// The step of "step-000000120", and of "step-000000120.part-...", a checkpoint that is being written.
std::optional<Step> step_of_checkpoint(const std::string& name);

inline constexpr const char* kCheckpointManifest = "manifest.json";
inline constexpr const char* kCheckpointPart = ".part-";

}  // namespace starling::record

namespace starling {
using record::CheckpointFolder;
using record::CheckpointInfo;
}  // namespace starling
