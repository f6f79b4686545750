#include "starling/train/experiment_checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <unistd.h>

#include "starling/base/error.h"
#include "starling/launch/environment.h"
#include "starling/method/saved_state.h"

namespace starling {
namespace {

const char* const kPosition = "position";

// Everything about where a run is, as numbers in a row.
std::vector<double> numbers_of(const RunPosition& position) {
  const RunReport& totals = position.totals;
  return {static_cast<double>(position.epoch),
          static_cast<double>(position.step),
          static_cast<double>(position.bytes),
          totals.epoch,
          totals.seconds,
          totals.computing,
          totals.waiting,
          totals.combining,
          static_cast<double>(totals.bytes_sent)};
}

RunPosition position_from(const CheckpointFile& file) {
  std::vector<double> numbers = numbers_of({});
  file.read_into(kPosition, std::as_writable_bytes(std::span(numbers)));
  RunPosition position;
  position.epoch = static_cast<int>(numbers[0]);
  position.step = static_cast<std::int64_t>(numbers[1]);
  position.bytes = static_cast<std::uint64_t>(numbers[2]);
  position.totals.epoch = numbers[3];
  position.totals.seconds = numbers[4];
  position.totals.computing = numbers[5];
  position.totals.waiting = numbers[6];
  position.totals.combining = numbers[7];
  position.totals.bytes_sent = static_cast<std::uint64_t>(numbers[8]);
  return position;
}

// A run may go on for longer, along another learning rate, or treat deaths in another way.
bool may_change(const std::string& setting) {
  return setting == "epochs" || setting == "warmup" || setting == "cosine" || setting == "on_loss";
}

// "" where checkpoints can be written.
std::string problem_with(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK) != 0) error.assign(errno, std::generic_category());
  return error ? fmt::format("cannot write checkpoints to {}: {}", folder.string(), error.message()) : "";
}

std::string common_token(Flock& flock) {
  std::string own = launch::random_token();
  own.resize(32, '0');
  std::vector<std::uint8_t> token(own.begin(), own.end());
  flock.broadcast(token, 0, "experiment/token");
  return {token.begin(), token.end()};
}

}  // namespace

ExperimentCheckpoints::ExperimentCheckpoints(Flock& flock, const Experiment& experiment,
                                             const CheckpointOptions& options)
    : flock_(flock), experiment_(experiment), options_(options) {
  if (options.folder.empty()) return;
  agree(problem_with(options.folder));  // now, not after the first epoch
  folder_.emplace(options.folder);
  CheckpointRunOptions run;
  run.folder = options.folder;
  run.run = common_token(flock);
  run.workers = flock.size();
  run.keep = static_cast<std::size_t>(std::max(1, options.keep));
  run.gone = [flock](Rank rank) { return !flock.view().has(rank); };
  writer_ = std::make_unique<CheckpointWriter>(std::move(run), flock.rank());
}

void ExperimentCheckpoints::save(Trainer& trainer, const RunPosition& position) {
  if (!writer_) return;
  Labels labels;
  for (const RunSetting& setting : settings_of(experiment_)) labels.emplace_back(setting.name, setting.value);
  SavedParts parts;
  trainer.save(parts);
  const std::vector<double> numbers = numbers_of(position);
  parts.add(kPosition, {DType::float64, numbers.data(), numbers.size()});
  writer_->save(trainer.steps(), labels, parts.parts(), flock_.view().members);
}

void ExperimentCheckpoints::finish() {
  if (writer_) writer_->finish();
}

void ExperimentCheckpoints::check_settings(const Labels& saved, const std::string& where) const {
  for (const RunSetting& setting : settings_of(experiment_)) {
    const auto then = find_label(saved, setting.name);
    if (!then || *then == setting.value || may_change(setting.name)) continue;
    throw Error(fmt::format(
        "{} was written with {} = {}, this run has {}; resume with the same, or train anew in another folder",
        where, setting.name, *then, setting.value));
  }
}

std::optional<CheckpointInfo> ExperimentCheckpoints::chosen() const {
  if (options_.resume_step) return folder_->find(*options_.resume_step);
  return folder_->newest();
}

void ExperimentCheckpoints::agree(const std::string& problem) {
  std::vector<std::int32_t> bad(static_cast<std::size_t>(flock_.size()));
  bad[static_cast<std::size_t>(flock_.rank())] = problem.empty() ? 0 : 1;
  flock_.allreduce(bad, Reduction::max, "experiment/checkpoints");
  if (!problem.empty()) throw Error(problem);
  const auto first = std::find(bad.begin(), bad.end(), 1);
  if (first != bad.end())
    throw Error(
        fmt::format("rank {} has a problem with its checkpoints, so nobody goes on", first - bad.begin()));
}

std::optional<ExperimentCheckpoints::Resumed> ExperimentCheckpoints::resume(Trainer& trainer) {
  if (!folder_ || !options_.resume) return std::nullopt;
  std::optional<CheckpointInfo> info;
  std::optional<CheckpointFile> file;
  std::string problem;
  bool same = true;
  try {
    info = chosen();
    if (info) {
      check_settings(info->labels, info->folder.string());
      same = info->workers == flock_.size() && info->files.size() == static_cast<std::size_t>(flock_.size());
      if (same) file.emplace(folder_->open(*info, flock_.rank()));
      if (!same)
        for (const CheckpointInfo::File& one : info->files) folder_->open(*info, one.rank);
    }
  } catch (const Error& error) {
    problem = error.what();
  }
  agree(problem);
  if (!info) return std::nullopt;
  Resumed resumed;
  if (same) {
    resumed.position = position_from(*file);
    try {
      trainer.restore(*file);
    } catch (const Error& error) {
      problem = error.what();
    }
    agree(problem);
    return resumed;
  }
  std::vector<std::filesystem::path> files;
  for (const CheckpointInfo::File& one : info->files) files.push_back(info->folder / one.name);
  try {
    resumed.position = position_from(CheckpointFile(files[0]));
    trainer.restore_mean(files);
  } catch (const Error& error) {
    problem = error.what();
  }
  agree(problem);
  // The samples are dealt to others now: the epoch begins again. Bytes go on from the flock's, on one rank.
  resumed.position.step = 0;
  resumed.position.bytes = flock_.rank() == 0 ? resumed.position.totals.bytes_sent : 0;
  resumed.reset = fmt::format(
      "{} files of {} workers, now {}: everybody starts from the mean model; optimizer and method state, "
      "random "
      "generators and the order of the data begin anew, and so does epoch {}",
      files.size(), info->workers, flock_.size(), resumed.position.epoch + 1);
  return resumed;
}

}  // namespace starling
