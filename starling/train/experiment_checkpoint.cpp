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
  return setting == "epochs" || setting == "warmup" || setting == "cosine" || setting == "on_peer_failure" ||
         setting == "on_nonfinite";
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
  if (!(options.every > 0))
    throw InvalidArgument(
        fmt::format("checkpoints every {} epochs: more than 0, parts of epochs, too", options.every));
  if (options.keep < 1)
    throw InvalidArgument(fmt::format("checkpoints: keep = {}; keep at least 1", options.keep));
  agree(problem_with(options.folder), -1);  // now, not after the first epoch
  folder_.emplace(options.folder);
  CheckpointRunOptions run;
  run.folder = options.folder;
  run.run = common_token(flock);
  run.workers = flock.size();
  run.keep = static_cast<std::size_t>(options.keep);
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
  last_ = trainer.steps();
}

void ExperimentCheckpoints::finish() {
  if (writer_) writer_->finish();
}

std::optional<RunNotSaved> ExperimentCheckpoints::not_saved() {
  if (!writer_) return std::nullopt;
  std::vector<std::int64_t> missing(static_cast<std::size_t>(flock_.size()));
  missing[static_cast<std::size_t>(flock_.rank())] = last_ && writer_->last_saved() != last_ ? 1 : 0;
  flock_.allreduce(missing, Reduction::max, "experiment/saved");
  const auto first = std::find(missing.begin(), missing.end(), 1);
  if (first == missing.end()) return std::nullopt;
  return RunNotSaved{last_.value_or(0), static_cast<Rank>(first - missing.begin())};
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

void ExperimentCheckpoints::agree(const std::string& problem, Step step) {
  std::vector<std::int64_t> bad(static_cast<std::size_t>(flock_.size()));
  bad[static_cast<std::size_t>(flock_.rank())] = problem.empty() ? 0 : 1;
  bad.insert(bad.end(), {step, -step});
  flock_.allreduce(bad, Reduction::max, "experiment/resume");
  if (!problem.empty()) throw Error(problem);
  const auto first = std::find(bad.begin(), bad.end() - 2, 1);
  if (first != bad.end() - 2)
    throw Error(
        fmt::format("rank {} has a problem with its checkpoints, so nobody goes on", first - bad.begin()));
  if (bad.end()[-2] != -bad.back())
    throw Error(
        fmt::format("{}: the ranks see other checkpoints there, the newest of steps {} to {} (-1: none); all "
                    "of them must see the same folder",
                    options_.folder.string(), -bad.back(), bad.end()[-2]));
}

std::string ExperimentCheckpoints::problem_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

std::optional<ExperimentCheckpoints::Resumed> ExperimentCheckpoints::resume(Trainer& trainer) {
  if (!folder_ || !options_.resume) return std::nullopt;
  std::optional<CheckpointInfo> info;
  std::vector<CheckpointFile> files;
  bool same = true;
  const std::string unreadable = problem_of([&] {
    info = chosen();
    if (!info) return;
    check_settings(info->labels, info->folder.string());
    same = info->workers == flock_.size() && info->files.size() == static_cast<std::size_t>(flock_.size());
    if (same)
      files.push_back(folder_->open(*info, flock_.rank()));
    else
      for (const CheckpointInfo::File& one : info->files) files.push_back(folder_->open(*info, one.rank));
  });
  agree(unreadable, info ? info->step : -1);
  if (!info) return std::nullopt;
  Resumed resumed;
  agree(problem_of([&] {
          resumed.position = position_from(files[0]);
          if (same)
            trainer.restore(files[0]);
          else
            trainer.restore_mean(files);
        }),
        info->step);
  if (same) return resumed;
  // The samples are dealt to others now: the epoch begins again. One rank has sent what all had.
  resumed.position.step = 0;
  resumed.position.totals.epoch = resumed.position.epoch;
  std::uint64_t bytes = 0;
  for (const CheckpointFile& file : files) bytes += position_from(file).bytes;
  resumed.position.bytes = flock_.rank() == 0 ? bytes : 0;
  resumed.reset = fmt::format(
      "{} files of {} workers, now {}: everybody starts from the mean model; optimizer and method state, "
      "random "
      "generators and the order of the data begin anew, and so does epoch {}",
      files.size(), info->workers, flock_.size(), resumed.position.epoch + 1);
  return resumed;
}

}  // namespace starling
