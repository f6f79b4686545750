#include "starling/train/trainer_checkpoint.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <torch/serialize.h>

#include "starling/base/error.h"
#include "starling/record/log.h"
#include "starling/train/device_tensors.h"
#include "starling/train/gathered.h"
#include "starling/train/saved_model.h"
#include "starling/train/settings_agreement.h"

namespace starling::train {
namespace {

const std::string kOptimizer = "torch optimizer";
const std::string kGenerator = "torch generator";
const std::string kLossScale = "loss scale";
const std::string kGoodSteps = "good steps";
const std::string kMasterWeights = "master weights/";
const std::string kExtra = "extra/";
const std::string kMethodText = "description/method";
const std::string kModelText = "description/model";
const std::string kOptimizerText = "description/optimizer";
const std::string kOptionsText = "description/options";

std::string text_in(const CheckpointFile& file, const std::string& part) {
  const std::vector<std::byte> bytes = file.read(part);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Throws Error if the file's description differs; files without descriptions are checked by their parts.
void demand_same(const CheckpointFile& file, const std::string& part, const Description& here) {
  if (!file.has(part)) return;
  if (const auto difference = first_difference(Description::parse(text_in(file, part)), here))
    throw Error(
        fmt::format("{}: {}", file.path().string(), difference->between("in the checkpoint", "here")));
}

ExtraValues extra_of(const CheckpointFile& file) {
  ExtraValues extra;
  for (const auto& part : file.parts()) {
    if (!part.name.starts_with(kExtra)) continue;
    const std::string text = text_in(file, part.name);
    extra.emplace(part.name.substr(kExtra.size()), torch::pickle_load({text.begin(), text.end()}));
  }
  return extra;
}

}  // namespace

TrainerCheckpoint::~TrainerCheckpoint() {
  if (!checkpoints_ || std::uncaught_exceptions() > 0) return;
  checkpoints_->finish();
  log_problem();
}

void TrainerCheckpoint::log_problem() {
  if (const auto problem = checkpoints_->problem())
    log(LogLevel::normal, fmt::format("rank {}: {}", replica_.flock.rank(), *problem));
}

void TrainerCheckpoint::flock_changed() {
  if (!checkpoints_) return;
  checkpoints_->finish();
  log_problem();
  checkpoints_.reset();
}

// Ranks that write to different folders would wait for files that never appear.
void TrainerCheckpoint::check_same_save(const std::string& prefix, const std::filesystem::path& folder,
                                        const SaveOptions& options) const {
  Flock& flock = replica_.flock;
  Description own;
  own.add("folder", folder.lexically_normal().string());
  own.add("keep", std::to_string(options.keep));
  own.add("background", options.background ? "true" : "false");
  own.add("step", std::to_string(replica_.driver->step()));
  const auto digest = static_cast<std::int64_t>(own.digest());
  const auto all = flock.allgather(std::vector<std::int64_t>{digest}, Name(prefix + "/call"));
  if (std::all_of(all.begin(), all.end(), [&](std::int64_t one) { return one == digest; })) return;
  if (const auto difference =
          difference_among(gather_descriptions(flock, own, Name(prefix + "/differences"))))
    throw InvalidArgument(
        fmt::format("the ranks do not save the same checkpoint: {}. save() writes all ranks' state into one "
                    "folder; for a "
                    "file of each rank's own there is save_parts() (save_checkpoint() in Python)",
                    *difference));
}

void TrainerCheckpoint::save(const std::filesystem::path& folder, const SaveOptions& options) {
  replica_.require_own_model("a checkpoint");
  const std::string prefix = replica_.operations_of("checkpoint", replica_.options.caller + "save()");
  check_same_save(prefix, folder, options);
  SavedParts parts;
  save_parts(parts);
  for (const auto& [name, value] : options.extra) {
    const std::vector<char> bytes = torch::pickle_save(value);
    parts.add_copy(kExtra + name, "pickle", std::as_bytes(std::span(bytes)));
  }
  if (!checkpoints_ || !checkpoints_->belongs_to(replica_.flock, folder, options.keep)) {
    flock_changed();
    checkpoints_ = std::make_unique<FlockCheckpoints>(replica_.flock, folder, options.keep, prefix);
  }
  const Labels labels = {{"method", replica_.options.method},
                         {"topology", replica_.schedule ? replica_.schedule->name() : "none"},
                         {"optimizer", replica_.optimizer->name()}};
  if (!options.background) {
    checkpoints_->write(replica_.driver->step(), labels, parts.parts());
  } else {
    checkpoints_->write_in_background(replica_.driver->step(), labels, parts.parts());
    log_problem();
  }
}

std::optional<Resumed> TrainerCheckpoint::resume(const std::filesystem::path& folder,
                                                 std::optional<Step> step) {
  replica_.require_own_model("resume()");
  if (checkpoints_) checkpoints_->finish();
  Flock& flock = replica_.flock;
  const std::string name = replica_.operations_of("resume", replica_.options.caller + "resume()");
  const auto opened =
      open_checkpoint(flock, folder, step, name, [&](const OpenedCheckpoint& one) { check_opened(one); });
  if (!opened) return std::nullopt;
  Resumed resumed{opened->info.step, {}, {}};
  all_or_none(flock, name, [&] {
    resumed.extra = extra_of(opened->files[0]);
    if (opened->same_ranks)
      restore(opened->files[0]);
    else
      restore_mean(opened->files);
  });
  if (!opened->same_ranks) resumed.reset = opened->mean_model_notice(flock.size());
  if (flock.rank() == flock.view().members.front()) {
    if (!resumed.reset.empty()) log(LogLevel::normal, resumed.reset);
    log_changed_options(opened->files[0]);
  }
  return resumed;
}

// Options other than the model, the method and its schedule may change, but the run then differs.
void TrainerCheckpoint::log_changed_options(const CheckpointFile& file) const {
  if (!file.has(kOptionsText)) return;
  const Description then = Description::parse(text_in(file, kOptionsText));
  const Description now = describe_options(replica_);
  for (const auto& [key, value] : then.lines())
    for (const auto& [key_now, value_now] : now.lines())
      if (key == key_now && value != value_now)
        log(LogLevel::normal, fmt::format("{} was written with {} = {}, now it is {}", file.path().string(),
                                          key, value, value_now));
}

void TrainerCheckpoint::check_model(const CheckpointFile& file) const {
  demand_same(file, kModelText, describe_model(replica_));
  SavedModel(replica_.module).check(file);
}

void TrainerCheckpoint::check_everything(const CheckpointFile& file) {
  check_model(file);
  demand_same(file, kMethodText, describe_method(replica_));
  demand_same(file, kOptimizerText, describe_optimizer(replica_));
  check_fits(*replica_.driver, file);
}

void TrainerCheckpoint::check_opened(const OpenedCheckpoint& opened) {
  if (opened.same_ranks) return check_everything(opened.files[0]);
  for (const CheckpointFile& file : opened.files) check_model(file);
}

void TrainerCheckpoint::save_parts(SavedParts& parts) {
  const torch::NoGradGuard no_grad;
  replica_.require_own_model("a checkpoint");
  if (!replica_.driver->begun()) {
    replica_.notice_changes();
    replica_.driver->settle();
  }
  ModuleTensors::Named tensors = saved_tensors(replica_.module);
  for (std::size_t b = 0; b < replica_.buckets.size(); ++b)
    if (replica_.buckets[b].has_master_weights())
      tensors.emplace_back(kMasterWeights + std::to_string(b), replica_.buckets[b].x);
  for (const auto& [name, tensor] : tensors) {
    if (is_on_device(tensor) && kernel::why_no_device().empty()) {
      const kernel::DeviceScope scope(torch_context(tensor));
      const auto whole = std::make_shared<torch::Tensor>(tensor.detach().contiguous());
      parts.add_device_view(name, type_name(*whole), bytes_of(*whole), whole);
      continue;
    }
    const torch::Tensor whole = tensor.detach().cpu().contiguous();
    if (whole.data_ptr() == tensor.data_ptr())
      parts.add_view(name, type_name(whole), bytes_of(whole));
    else
      parts.add_copy(name, type_name(whole), bytes_of(whole));
  }
  starling::save(*replica_.driver, parts);
  parts.add_text(kOptimizer, replica_.save_optimizer());
  parts.add_number(kLossScale, step_.progress.loss_scale);
  parts.add_number(kGoodSteps, step_.progress.good_steps);
  parts.add_text(kMethodText, describe_method(replica_).text());
  parts.add_text(kModelText, describe_model(replica_).text());
  parts.add_text(kOptimizerText, describe_optimizer(replica_).text());
  parts.add_text(kOptionsText, describe_options(replica_).text());
  at::Generator generator = at::globalContext().defaultGenerator(torch::kCPU);
  const std::lock_guard lock(generator.mutex());
  const torch::Tensor state = generator.get_state();
  parts.add_copy(kGenerator, type_name(state), bytes_of(state));
}

void TrainerCheckpoint::restore(const CheckpointFile& file) {
  const torch::NoGradGuard no_grad;
  replica_.require_own_model("restore()");
  for (std::size_t i = 0; i < replica_.parameters.size(); ++i) replica_.rebind(i);
  check_everything(file);
  // The optimizer's settings determine which state it has.
  try {
    replica_.restore_optimizer(text_in(file, kOptimizer));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", file.path().string(), error.what()));
  }
  SavedModel model(replica_.module);
  model.read(file);
  starling::restore(*replica_.driver, file);
  double good_steps = 0;
  file.read_into(kLossScale, std::as_writable_bytes(std::span(&step_.progress.loss_scale, 1)));
  file.read_into(kGoodSteps, std::as_writable_bytes(std::span(&good_steps, 1)));
  step_.progress.good_steps = static_cast<int>(good_steps);
  at::Generator generator = at::globalContext().defaultGenerator(torch::kCPU);
  const std::lock_guard lock(generator.mutex());
  const torch::Tensor state = generator.get_state();
  file.read_into(kGenerator, bytes_of(state));
  generator.set_state(state);
  for (std::size_t b = 0; b < replica_.buckets.size(); ++b) {
    const Bucket& bucket = replica_.buckets[b];
    bucket.replace_x();
    // A checkpoint that was written without them has only the parameters.
    if (const std::string part = kMasterWeights + std::to_string(b);
        bucket.has_master_weights() && file.has(part)) {
      const torch::Tensor weights = bucket.x.cpu();
      file.read_into(part, bytes_of(weights));
      if (!weights.is_same(bucket.x)) torch::Tensor(bucket.x).copy_(weights);
    }
  }
  // The method's state was saved with these parameters, so it must not be updated for them.
  replica_.note_versions();
  step_.gradients().note_parameters();
}

void TrainerCheckpoint::restore_mean(std::span<const CheckpointFile> files) {
  const torch::NoGradGuard no_grad;
  if (files.empty()) throw InvalidArgument("restore_mean: no files; give at least one");
  if (replica_.driver->step() > 0)
    throw InvalidArgument(
        fmt::format("restore_mean after {} steps: optimizer and method state would not be "
                    "of this model; make a new trainer for it",
                    replica_.driver->step()));
  for (const CheckpointFile& file : files) check_model(file);
  SavedModel model(replica_.module);
  std::vector<torch::Tensor> sums;
  for (const CheckpointFile& file : files) {
    model.read(file);
    for (std::size_t i = 0; i < model.tensors.size(); ++i) {
      const torch::Tensor own = model.tensors[i].detach();
      if (sums.size() <= i)
        sums.push_back(own.is_floating_point() ? own.to(torch::kFloat64, false, true) : own.clone());
      else if (own.is_floating_point())
        sums[i] += own.to(torch::kFloat64);
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].is_floating_point()) sums[i] /= static_cast<double>(files.size());
    model.tensors[i].detach().copy_(sums[i]);
  }
  for (const Bucket& bucket : replica_.buckets) bucket.replace_x();
  replica_.driver->restart();
  replica_.driver->set_step(saved_step(files[0]));
  step_.parameters_changed();
}

}  // namespace starling::train
