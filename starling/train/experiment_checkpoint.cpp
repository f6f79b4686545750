#include "starling/train/experiment_checkpoint.h"

#include <cmath>
#include <fmt/format.h>
#include <iostream>

#include "starling/base/error.h"
#include "starling/method/saved_state.h"

namespace starling::train {
namespace {

const char* const kPosition = "position";

// The position as numbers, in a fixed order.
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

// A resumed run may last longer, follow another learning rate, or handle failures in another way.
bool may_change(const std::string& setting) {
  return setting == "epochs" || setting == "warmup" || setting == "cosine" || setting == "on_peer_failure" ||
         setting == "on_nonfinite";
}

}  // namespace

void check_checkpoints(const CheckpointOptions& options) {
  if (options.folder.empty()) return;
  if (!(options.every > 0))
    throw InvalidArgument(
        fmt::format("checkpoints every {} epochs: must be more than 0; fractions are valid", options.every));
  if (options.resume) return;
  const auto saved = CheckpointFolder(options.folder).list();
  if (saved.empty()) return;
  throw InvalidArgument(
      fmt::format("{} has checkpoints of an earlier run, the last of step {}, which a new run would replace; "
                  "continue that "
                  "run with --resume, or give another folder",
                  options.folder.string(), saved.front().step));
}

ExperimentCheckpoints::ExperimentCheckpoints(Flock& flock, const Experiment& experiment,
                                             const CheckpointOptions& options)
    : flock_(flock), experiment_(experiment), options_(options) {
  if (options.folder.empty()) return;
  check_checkpoints(options);
  // Created now, so that an unusable folder is an error before the first epoch.
  writer_ = std::make_unique<FlockCheckpoints>(flock, options.folder, options.keep, "experiment/checkpoint");
}

bool ExperimentCheckpoints::is_due(double epoch) {
  const double number = std::floor(epoch / options_.every + 1e-9);
  if (number <= due_) return false;
  due_ = number;
  return true;
}

void ExperimentCheckpoints::save(Trainer& trainer, const RunPosition& position) {
  if (!writer_) return;
  Labels labels;
  for (const RunSetting& setting : settings_of(experiment_)) labels.emplace_back(setting.name, setting.value);
  SavedParts parts;
  trainer.save_parts(parts);
  const std::vector<double> numbers = numbers_of(position);
  parts.add(kPosition, {DType::float64, numbers.data(), numbers.size()});
  writer_->write_in_background(trainer.steps(), labels, parts.parts());
}

void ExperimentCheckpoints::finish() {
  if (writer_) writer_->finish();
}

std::optional<RunNotSaved> ExperimentCheckpoints::not_saved() {
  if (!writer_) return std::nullopt;
  const auto rank = writer_->first_failed();
  if (!rank) return std::nullopt;
  return RunNotSaved{writer_->last_step().value_or(0), *rank};
}

void ExperimentCheckpoints::print_problem() {
  if (!writer_) return;
  if (const auto problem = writer_->problem())
    std::cerr << fmt::format("starling: rank {}: {}\n", flock_.rank(), *problem) << std::flush;
}

void ExperimentCheckpoints::check_settings(const Labels& saved, const std::string& where) const {
  for (const RunSetting& setting : settings_of(experiment_)) {
    const auto then = find_label(saved, setting.name);
    if (!then || may_change(setting.name)) continue;
    const auto canonical = [&](const std::string& value) {
      return canonical_setting(setting.name, value, experiment_.seed);
    };
    if (canonical(*then) == canonical(setting.value)) continue;
    throw Error(fmt::format(
        "{} was written with {} = {}, this run has {}; use the same value, or start a new run in another "
        "folder",
        where, setting.name, *then, setting.value));
  }
}

std::optional<ExperimentCheckpoints::Restored> ExperimentCheckpoints::resume(Trainer& trainer) {
  if (!writer_ || !options_.resume) return std::nullopt;
  const std::string name = "experiment/resume";
  const auto opened = open_checkpoint(
      flock_, options_.folder, options_.resume_step, name,
      [&](const OpenedCheckpoint& one) { check_settings(one.info.labels, one.info.folder.string()); });
  if (!opened) return std::nullopt;
  Restored restored;
  all_or_none(flock_, name, [&] {
    restored.position = position_from(opened->files[0]);
    if (opened->same_ranks)
      trainer.restore(opened->files[0]);
    else
      trainer.restore_mean(opened->files);
  });
  RunPosition& position = restored.position;
  if (!opened->same_ranks) {
    // The samples have been distributed to other ranks, so the epoch restarts. Rank 0 accounts for all ranks'
    // bytes.
    position.step = 0;
    position.totals.epoch = position.epoch;
    std::uint64_t bytes = 0;
    for (const CheckpointFile& file : opened->files) bytes += position_from(file).bytes;
    position.bytes = flock_.rank() == 0 ? bytes : 0;
    restored.reset = fmt::format("{}, and so is the order of the data; epoch {} restarts",
                                 opened->mean_model_notice(flock_.size()), position.epoch + 1);
  }
  due_ = std::floor(position.totals.epoch / options_.every + 1e-9);
  return restored;
}

}  // namespace starling::train
