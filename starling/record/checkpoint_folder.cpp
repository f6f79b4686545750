#include "starling/record/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>

#include "starling/base/error.h"
#include "starling/record/checkpoint_manifest.h"

namespace starling::record {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";

// The problem that file sizes reveal, without reading the files; "" if none.
std::string size_problem(const CheckpointInfo& info) {
  for (const auto& file : info.files) {
    std::error_code error;
    const fs::path path = info.folder / file.name;
    const auto bytes = fs::file_size(path, error);
    if (error) return fmt::format("cannot read {}: {}", path.string(), error.message());
    if (bytes < file.mark.bytes)
      return fmt::format("{} is truncated: {} of {} bytes", path.string(), bytes, file.mark.bytes);
    if (bytes > file.mark.bytes)
      return fmt::format("{} is corrupt: it has {} bytes instead of {}", path.string(), bytes,
                         file.mark.bytes);
  }
  return {};
}

CheckpointFile open_checked(const CheckpointInfo& info, const CheckpointInfo::File& file) {
  CheckpointFile opened(info.folder / file.name);
  const CheckpointFileMark mark = opened.mark();
  if (mark.bytes != file.mark.bytes || mark.checksum != file.mark.checksum)
    throw Error(fmt::format("{} is not the file that {} names: it is from run {}, rank {}, step {}",
                            opened.path().string(), kCheckpointManifest,
                            find_label(opened.labels(), "run").value_or("?"),
                            find_label(opened.labels(), "rank").value_or("?"),
                            find_label(opened.labels(), "step").value_or("?")));
  opened.verify();
  return opened;
}

void check_files(const CheckpointInfo& info) {
  if (!info.problem.empty()) throw Error(info.problem);
  for (const auto& file : info.files) open_checked(info, file);
}

bool is_whole(const CheckpointInfo& info) {
  try {
    check_files(info);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Advice for the end of an error about all[index].
std::string offer_before(const std::vector<CheckpointInfo>& all, std::size_t index) {
  for (std::size_t i = index + 1; i < all.size(); ++i)
    if (is_whole(all[i]))
      return fmt::format(
          "; the previous checkpoint, {}, is intact: resume from it with --resume {} (in a program, "
          "resume(folder, {}))",
          all[i].name(), all[i].step, all[i].step);
  return "; there is no intact checkpoint before it";
}

std::size_t index_of(const std::vector<CheckpointInfo>& all, Step step, const fs::path& folder) {
  const auto found = std::ranges::find(all, step, &CheckpointInfo::step);
  if (found != all.end()) return static_cast<std::size_t>(found - all.begin());
  std::vector<std::string> steps;
  for (const CheckpointInfo& info : all) steps.push_back(std::to_string(info.step));
  throw Error(fmt::format("{} has no checkpoint of step {}; {}", folder.string(), step,
                          steps.empty() ? "it has none" : "it has those of " + join_words(steps)));
}

}  // namespace

std::string checkpoint_name(Step step) {
  return fmt::format("{}{:09}", kStep, step);
}

std::string checkpoint_file_name(Rank rank) {
  return fmt::format("rank-{}.state", rank);
}

std::optional<Step> step_of_checkpoint(const std::string& name) {
  const std::string stem = name.substr(0, name.find(kCheckpointPart));
  Step step = 0;
  if (!stem.starts_with(kStep)) return std::nullopt;
  std::from_chars(stem.data() + kStep.size(), stem.data() + stem.size(), step);
  if (checkpoint_name(step) != stem) return std::nullopt;
  return step;
}

std::string CheckpointInfo::name() const {
  return checkpoint_name(step);
}

std::uint64_t CheckpointInfo::bytes() const {
  std::uint64_t sum = 0;
  for (const File& file : files) sum += file.mark.bytes;
  return sum;
}

bool CheckpointInfo::has(Rank rank) const {
  return std::ranges::find(files, rank, &File::rank) != files.end();
}

std::vector<CheckpointInfo> CheckpointFolder::list() const {
  std::map<Step, CheckpointInfo> found;
  std::map<Step, CheckpointInfo> unreadable;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const auto step = step_of_checkpoint(entry.path().filename().string());
    if (!step || !fs::exists(entry.path() / kCheckpointManifest, error)) continue;
    try {
      CheckpointInfo info = read_manifest(entry.path());
      if (info.step != *step)
        throw Error(
            fmt::format("{} belongs to step {}", (entry.path() / kCheckpointManifest).string(), info.step));
      info.problem = size_problem(info);
      // There are two of one step if a run was killed while it replaced an older run's checkpoint.
      const auto old = found.find(*step);
      if (old == found.end() || old->second.number < info.number) found[*step] = std::move(info);
    } catch (const Error& problem) {
      CheckpointInfo& info = unreadable[*step];
      info.step = *step;
      info.folder = entry.path();
      info.problem = problem.what();
    }
  }
  // The age of an unreadable checkpoint is estimated from its step.
  for (auto& [step, info] : unreadable) {
    if (found.contains(step)) continue;
    for (const auto& [other, whole] : found)
      if (other < step) info.number = std::max(info.number, whole.number);
    found.emplace(step, std::move(info));
  }
  std::vector<CheckpointInfo> all;
  for (auto& [step, info] : found) all.push_back(std::move(info));
  std::ranges::sort(all, [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return std::pair(a.number, a.step) > std::pair(b.number, b.step);
  });
  return all;
}

const CheckpointInfo& CheckpointFolder::usable(const std::vector<CheckpointInfo>& all,
                                               std::size_t index) const {
  if (!all[index].problem.empty()) throw Error(all[index].problem + offer_before(all, index));
  return all[index];
}

std::optional<CheckpointInfo> CheckpointFolder::newest() const {
  const auto all = list();
  if (all.empty()) return std::nullopt;
  return usable(all, 0);
}

std::optional<CheckpointInfo> CheckpointFolder::newest_good() const {
  for (CheckpointInfo& info : list())
    if (is_whole(info)) return std::move(info);
  return std::nullopt;
}

CheckpointInfo CheckpointFolder::find(Step step) const {
  const auto all = list();
  return usable(all, index_of(all, step, folder_));
}

CheckpointInfo CheckpointFolder::check(Step step) const {
  const auto all = list();
  const std::size_t index = index_of(all, step, folder_);
  try {
    check_files(all[index]);
  } catch (const Error& error) {
    throw Error(error.what() + offer_before(all, index));
  }
  return all[index];
}

CheckpointFile CheckpointFolder::open(const CheckpointInfo& info, Rank rank) const {
  const auto found = std::ranges::find(info.files, rank, &CheckpointInfo::File::rank);
  if (found == info.files.end()) {
    std::vector<std::string> ranks;
    for (const auto& file : info.files) ranks.push_back(std::to_string(file.rank));
    throw Error(fmt::format("{} has no file of rank {}; it has those of {}", info.folder.string(), rank,
                            join_words(ranks)));
  }
  try {
    return open_checked(info, *found);
  } catch (const Error& error) {
    const auto all = list();
    const auto here = std::ranges::find(all, info.step, &CheckpointInfo::step);
    throw Error(error.what() + offer_before(all, static_cast<std::size_t>(here - all.begin())));
  }
}

}  // namespace starling::record
