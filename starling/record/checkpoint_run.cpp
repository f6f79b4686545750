#include "starling/record/checkpoint_run.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <stdio.h>
#include <thread>

#include "starling/base/atomic_file.h"
#include "starling/base/error.h"
#include "starling/record/checkpoint_manifest.h"
#include "starling/record/checkpoint_phase.h"

namespace starling::record {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(fmt::format("cannot create {}: {}", folder.string(), error.message()));
}

// Removes the manifest first: without it the folder is not a checkpoint, even if the rest cannot be removed
// now.
void remove_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  fs::remove(folder / kCheckpointManifest, ignored);
  checkpoint_reached(CheckpointPhase::removing);
  fs::remove_all(folder, ignored);
}

fs::path failure_note(const fs::path& folder, Rank rank) {
  return folder / fmt::format("rank-{}.failed", rank);
}

// The mark of a checkpoint that will not be completed.
fs::path abandoned_mark(const fs::path& folder) {
  return folder / "abandoned";
}

std::vector<fs::path> step_folders(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (step_of_checkpoint(entry.path().filename().string())) found.push_back(entry.path());
  return found;
}

[[noreturn]] void fail_to_rename(const fs::path& from, const fs::path& to) {
  throw Error(
      fmt::format("cannot rename {} to {}: {}", from.string(), to.filename().string(), std::strerror(errno)));
}

void publish(const fs::path& folder, const fs::path& working, Step step) {
  const fs::path place = folder / checkpoint_name(step);
  const fs::path aside = working.string() + "-replaced";
  std::optional<fs::path> replaced;
  if (rename(working.c_str(), place.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) fail_to_rename(working, place);
    // The folder belongs to another run that resumed from an earlier step. Where folders cannot be exchanged,
    // there is a moment with neither name in place; CheckpointFolder then finds them under their other names.
    if (renameat2(AT_FDCWD, working.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) {
      replaced = working;
    } else {
      if (rename(place.c_str(), aside.c_str()) != 0) fail_to_rename(place, aside);
      if (rename(working.c_str(), place.c_str()) != 0) fail_to_rename(working, place);
      replaced = aside;
    }
  }
  sync_folder(place);  // the manifest
  sync_folder(folder);
  if (replaced) remove_checkpoint(*replaced);
}

// Whether a run still writes this step.
using InUse = std::function<bool(const std::string& run, Step step)>;

void tidy(const fs::path& folder, const InUse& in_use) {
  const auto complete = CheckpointFolder(folder).list();
  for (const fs::path& found : step_folders(folder)) {
    const std::string name = found.filename().string();
    const Step step = *step_of_checkpoint(name);
    const std::size_t part = name.find(kCheckpointPart);
    const bool finished = std::ranges::find(complete, found, &CheckpointInfo::folder) != complete.end();
    if (part == std::string::npos) {
      if (!fs::exists(found / kCheckpointManifest)) remove_checkpoint(found);
    } else if (!in_use(name.substr(part + std::strlen(kCheckpointPart)), step)) {
      // Killed after writing the manifest: only the last rename is missing.
      if (finished)
        publish(folder, found, step);
      else
        remove_checkpoint(found);
    }
  }
}

}  // namespace

void tidy_checkpoints(const fs::path& folder) {
  tidy(folder, [](const std::string&, Step) { return false; });
}

CheckpointRun::CheckpointRun(CheckpointRunOptions options)
    : options_(std::move(options)), folder_(options_.folder) {
  if (options_.run.empty() || options_.run.find_first_not_of(kAllowed) != std::string::npos)
    throw InvalidArgument(
        fmt::format("invalid token '{}' of a run that writes checkpoints; valid are letters, digits, - and _",
                    options_.run));
  if (options_.keep < 1) throw InvalidArgument("checkpoints: keep = 0; keep at least 1");
  if (options_.workers < 1)
    throw InvalidArgument(fmt::format("checkpoints: {} workers; there must be at least 1", options_.workers));
}

fs::path CheckpointRun::working_folder(Step step) const {
  return options_.folder / (checkpoint_name(step) + kCheckpointPart + options_.run);
}

void CheckpointRun::begin(Step step) const {
  make_folder(options_.folder);
  tidy(options_.folder, [&](const std::string& run, Step of) { return run == options_.run && of >= step; });
  make_folder(working_folder(step));
  std::error_code ignored;
  fs::remove(abandoned_mark(working_folder(step)), ignored);  // of an earlier attempt
}

void CheckpointRun::write(Step step, Rank rank, const Labels& labels, std::span<const StatePart> parts,
                          std::span<const Rank> members, const std::stop_token& stop) const {
  const bool completes = !members.empty() && rank == members.front();
  try {
    if (completes) begin(step);
    write_rank(step, rank, labels, parts);
  } catch (const std::exception& error) {
    give_up_rank(step, rank, error.what());
    completes ? abandon(step, members) : remove_if_abandoned(step, members);
    throw;
  }
  if (completes)
    complete(step, members, labels, stop);
  else
    remove_if_abandoned(step, members);
}

void CheckpointRun::remove_unfinished() const {
  tidy(options_.folder, [&](const std::string& run, Step) { return run != options_.run; });
}

void CheckpointRun::write_rank(Step step, Rank rank, const Labels& labels,
                               std::span<const StatePart> parts) const {
  const fs::path folder = working_folder(step);
  make_folder(folder);
  std::error_code ignored;
  fs::remove(failure_note(folder, rank), ignored);  // of an earlier attempt
  Labels all = {{"run", options_.run},
                {"step", std::to_string(step)},
                {"rank", std::to_string(rank)},
                {"workers", std::to_string(options_.workers)}};
  all.insert(all.end(), labels.begin(), labels.end());
  write_checkpoint_file(folder / checkpoint_file_name(rank), all, parts, options_.run);
}

void CheckpointRun::give_up_rank(Step step, Rank rank, const std::string& why) const noexcept {
  try {
    std::ofstream(failure_note(working_folder(step), rank))
        << why;  // if this fails, complete() waits for its time limit
  } catch (...) {
  }
}

void CheckpointRun::abandon(Step step, std::span<const Rank> members) const noexcept {
  try {
    const fs::path folder = working_folder(step);
    if (!std::ofstream(abandoned_mark(folder))) return remove_checkpoint(folder);
    for (const Rank member : members)
      if (const fs::path file = folder / checkpoint_file_name(member); fs::exists(file)) {
        give_up_rank(step, member, "abandoned");
        fs::remove(file);
      }
    remove_if_abandoned(step, members);
  } catch (...) {
  }
}

// Every rank writes its file or its failure note before it looks for the mark, and the owner writes the mark
// before it looks for those, so at least one of them sees that it is the last.
void CheckpointRun::remove_if_abandoned(Step step, std::span<const Rank> members) const noexcept {
  try {
    const fs::path folder = working_folder(step);
    const auto is_done = [&](Rank member) {
      return fs::exists(folder / checkpoint_file_name(member)) || fs::exists(failure_note(folder, member)) ||
             (options_.gone && options_.gone(member));
    };
    if (fs::exists(abandoned_mark(folder)) && std::ranges::all_of(members, is_done))
      remove_checkpoint(folder);
  } catch (...) {
  }
}

void CheckpointRun::await(Step step, Rank member, std::chrono::steady_clock::time_point deadline,
                          const std::stop_token& stop) const {
  const fs::path folder = working_folder(step);
  const fs::path file = folder / checkpoint_file_name(member);
  const auto give_up = [&](const std::string& why) {
    throw Error(fmt::format("no checkpoint of step {}: {}", step, why));
  };
  std::error_code error;
  auto pause = std::chrono::milliseconds(1);
  while (!fs::exists(file, error)) {
    std::ifstream note(failure_note(folder, member));
    if (note)
      give_up(fmt::format("rank {}: {}", member, std::string(std::istreambuf_iterator<char>(note), {})));
    if (options_.gone && options_.gone(member)) give_up(fmt::format("rank {} died", member));
    if (stop.stop_requested()) give_up(fmt::format("stopped while rank {} had not written its file", member));
    if (std::chrono::steady_clock::now() >= deadline)
      give_up(fmt::format("rank {} has not written its file within {:.3g} s", member,
                          std::chrono::duration<double>(options_.wait).count()));
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
}

CheckpointInfo CheckpointRun::complete(Step step, std::span<const Rank> members, const Labels& labels,
                                       const std::stop_token& stop) const {
  const fs::path folder = working_folder(step);
  CheckpointInfo info;
  try {
    const auto deadline = std::chrono::steady_clock::now() + options_.wait;
    for (const Rank member : members) await(step, member, deadline, stop);
    info = {.step = step,
            .number = 0,
            .workers = options_.workers,
            .run = options_.run,
            .labels = labels,
            .files = {},
            .folder = folder,
            .problem = {}};
    for (const Rank member : members) {
      const std::string name = checkpoint_file_name(member);
      info.files.push_back({member, name, CheckpointFile(folder / name).mark()});
    }
    std::ranges::sort(info.files, {}, &CheckpointInfo::File::rank);
    for (const CheckpointInfo& other : folder_.list()) info.number = std::max(info.number, other.number + 1);
    checkpoint_reached(CheckpointPhase::before_manifest);
    const std::string text = manifest_text(info);
    AtomicFile manifest(folder / kCheckpointManifest, options_.run);
    const auto bytes = std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    manifest.write(bytes);
    manifest.place();
  } catch (...) {
    abandon(step, members);
    throw;
  }
  checkpoint_reached(CheckpointPhase::manifest_written);
  publish(options_.folder, folder, step);
  info.folder = options_.folder / checkpoint_name(step);
  checkpoint_reached(CheckpointPhase::published);
  remove_old(step);
  checkpoint_reached(CheckpointPhase::removed);
  return info;
}

void CheckpointRun::remove_old(Step step) const {
  std::size_t good = 0;
  for (const CheckpointInfo& info : folder_.list()) {
    const bool readable = !info.files.empty();  // never remove what is unreadable
    if (good >= options_.keep && readable) remove_checkpoint(info.folder);
    if (info.problem.empty()) ++good;
  }
  // Unfinished checkpoints of this run: ranks write in order of steps, so these are abandoned.
  for (const fs::path& found : step_folders(options_.folder)) {
    const std::string name = found.filename().string();
    if (name.ends_with(kCheckpointPart + options_.run) && *step_of_checkpoint(name) <= step)
      remove_checkpoint(found);
  }
}

}  // namespace starling::record
