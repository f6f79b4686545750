#include "starling/train/flock_checkpoints.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/launch/environment.h"
#include "starling/record/checkpoint_run.h"
#include "starling/record/log.h"

namespace starling::train {
namespace {

// The text of the error that work() throws, or "".
std::string problem_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.empty() ? "unknown error" : text;
  }
  return {};
}

// Throws Error on all ranks if one rank has a problem.
void share_problem(Flock& flock, const std::string& name, const std::string& problem) {
  std::vector<std::int32_t> bad(static_cast<std::size_t>(flock.size()));
  bad[static_cast<std::size_t>(flock.rank())] = problem.empty() ? 0 : 1;
  flock.allreduce(bad, Reduction::max, Name(name + "/problem"));
  const auto first = std::find(bad.begin(), bad.end(), 1);
  if (first == bad.end()) return;
  const auto rank = static_cast<Rank>(first - bad.begin());
  std::vector<std::int64_t> length = {static_cast<std::int64_t>(problem.size())};
  flock.broadcast(length, rank, Name(name + "/problem length"));
  std::string text = problem;
  text.resize(static_cast<std::size_t>(length[0]));
  flock.broadcast(reinterpret_cast<std::uint8_t*>(text.data()), text.size(), rank,
                  Name(name + "/problem text"));
  // One rank's failure may cause others, so all ranks report the first problem, with its rank unless all
  // ranks have the same.
  std::vector<std::int32_t> same = {problem == text ? 1 : 0};
  flock.allreduce(same, Reduction::min, Name(name + "/problem of all"));
  throw Error(same[0] == 1 ? text : fmt::format("rank {}: {}", rank, text));
}

void make_writable(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK) != 0) error.assign(errno, std::generic_category());
  if (error) throw Error(fmt::format("cannot write checkpoints to {}: {}", folder.string(), error.message()));
}

void check_is_folder(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_directory(path, error))
    throw Error(fmt::format("cannot resume from {}: it is not a folder; give the folder that was saved to",
                            path.string()));
}

void log_missing_folder(const Flock& flock, const std::filesystem::path& path) {
  std::error_code error;
  if (flock.rank() == flock.view().members.front() && !std::filesystem::exists(path, error))
    log(LogLevel::normal,
        fmt::format("there is no folder {} to resume from, so training starts from scratch", path.string()));
}

std::string common_token(Flock& flock, const std::string& name) {
  std::string own = launch::random_token();
  own.resize(32, '0');
  std::vector<std::uint8_t> token(own.begin(), own.end());
  flock.broadcast(token, flock.view().members.front(), Name(name + "/token"));
  return {token.begin(), token.end()};
}

}  // namespace

void all_or_none(Flock& flock, const std::string& name, const std::function<void()>& work) {
  share_problem(flock, name, problem_of(work));
}

FlockCheckpoints::FlockCheckpoints(const Flock& flock, const std::filesystem::path& folder, int keep,
                                   std::string name)
    : flock_(flock), name_(std::move(name)) {
  if (keep < 1) throw InvalidArgument(fmt::format("checkpoints: keep = {}; keep at least 1", keep));
  all_or_none(flock_, name_, [&] {
    make_writable(folder);
    if (writes_manifest()) tidy_checkpoints(folder);
  });
  options_.folder = folder;
  options_.run = common_token(flock_, name_);
  options_.workers = flock.size();
  options_.keep = static_cast<std::size_t>(keep);
  options_.gone = [flock](Rank rank) { return !flock.view().has(rank); };
}

bool FlockCheckpoints::belongs_to(const Flock& flock, const std::filesystem::path& folder, int keep) const {
  return flock_ == flock && options_.folder == folder && options_.keep == static_cast<std::size_t>(keep);
}

void FlockCheckpoints::write(Step step, const Labels& labels, std::span<const StatePart> parts) {
  finish();
  std::vector<std::int64_t> steps = {step, -step};
  flock_.allreduce(steps, Reduction::max, Name(name_ + "/step"));
  if (steps[0] != -steps[1])
    throw Error(fmt::format("a checkpoint needs all ranks at the same step; they are at steps {} to {}",
                            -steps[1], steps[0]));
  try {
    all_or_none(flock_, name_, [&] {
      CheckpointRun(options_).write(step, flock_.rank(), labels, parts, flock_.view().members);
    });
  } catch (const Error&) {
    if (writes_manifest()) problem_of([&] { CheckpointRun(options_).remove_unfinished(); });
    throw;
  }
}

void FlockCheckpoints::write_in_background(Step step, const Labels& labels,
                                           std::span<const StatePart> parts) {
  if (!writer_) writer_ = std::make_unique<CheckpointWriter>(options_, flock_.rank());
  writer_->save(step, labels, parts, flock_.view().members);
  last_ = step;
}

void FlockCheckpoints::finish() {
  if (writer_) writer_->finish();
}

std::optional<std::string> FlockCheckpoints::problem() {
  return writer_ ? writer_->problem() : std::nullopt;
}

std::optional<Rank> FlockCheckpoints::first_failed() {
  std::vector<std::int64_t> failed(static_cast<std::size_t>(flock_.size()));
  failed[static_cast<std::size_t>(flock_.rank())] = last_ && writer_->last_saved() != last_ ? 1 : 0;
  flock_.allreduce(failed, Reduction::max, Name(name_ + "/saved"));
  if (writer_ && writes_manifest())
    problem_of([&] { writer_->remove_unfinished(); });  // no rank writes any more
  const auto first = std::find(failed.begin(), failed.end(), 1);
  if (first == failed.end()) return std::nullopt;
  return static_cast<Rank>(first - failed.begin());
}

std::string OpenedCheckpoint::mean_model_notice(Rank ranks) const {
  return fmt::format(
      "{} files of {} workers, now {}: all ranks start from the mean model; optimizer and method state and "
      "random generators are reset",
      files.size(), info.workers, ranks);
}

std::optional<OpenedCheckpoint> open_checkpoint(Flock& flock, const std::filesystem::path& path,
                                                std::optional<Step> step, const std::string& name,
                                                const std::function<void(const OpenedCheckpoint&)>& check) {
  std::optional<OpenedCheckpoint> opened;
  all_or_none(flock, name, [&] {
    check_is_folder(path);
    const CheckpointFolder folder(path);
    auto info = step ? folder.find(*step) : folder.newest();
    if (!info) return;
    opened.emplace();
    opened->info = std::move(*info);
    opened->same_ranks = opened->info.workers == flock.size() &&
                         opened->info.files.size() == static_cast<std::size_t>(flock.size());
    if (opened->same_ranks)
      opened->files.push_back(folder.open(opened->info, flock.rank()));
    else
      for (const auto& file : opened->info.files)
        opened->files.push_back(folder.open(opened->info, file.rank));
    check(*opened);
  });
  const Step found = opened ? opened->info.step : -1;
  std::vector<std::int64_t> steps = {found, -found};
  flock.allreduce(steps, Reduction::max, Name(name + "/found"));
  if (steps[0] != -steps[1])
    throw Error(
        fmt::format("{}: the ranks see different checkpoints there, the newest of steps {} to {} (-1: none); "
                    "all ranks must see the same folder",
                    path.string(), -steps[1], steps[0]));
  if (!opened) log_missing_folder(flock, path);
  return opened;
}

}  // namespace starling::train
