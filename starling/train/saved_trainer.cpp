#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/method/saved_state.h"
#include "starling/train/saved_model.h"
#include "starling/train/trainer_state.h"

namespace starling {
namespace {

const std::string kOptimizer = "torch optimizer";
const std::string kGenerator = "torch generator";
const std::string kLossScale = "loss scale";
const std::string kGoodSteps = "good steps";

}  // namespace

// Whether torch's own optimizer has something to remember.
bool Trainer::State::optimizer_remembers() {
  for (Update* update : updates())
    if (update->state().empty()) return true;
  return local->native().empty();
}

void Trainer::State::save(SavedParts& parts) {
  const torch::NoGradGuard no_grad;
  if (averaged)
    throw InvalidArgument(
        "a checkpoint while the parameters are the flock's average: revert it or keep it first");
  if (!driver->begun()) {
    notice_changes();
    driver->settle();
  }
  for (const auto& [name, tensor] : saved_tensors(module)) {
    const torch::Tensor whole = tensor.detach().cpu().contiguous();
    if (whole.data_ptr() == tensor.data_ptr())
      parts.add_view(name, type_name(whole), bytes_of(whole));
    else
      parts.add_copy(name, type_name(whole), bytes_of(whole));
  }
  starling::save(*driver, parts);
  parts.add_text(kOptimizer, local->saved(optimizer_remembers()));
  parts.add_number(kLossScale, loss_scale);
  parts.add_number(kGoodSteps, good_steps);
  at::Generator generator = at::globalContext().defaultGenerator(torch::kCPU);
  const std::lock_guard lock(generator.mutex());
  const torch::Tensor drawn = generator.get_state();
  parts.add_copy(kGenerator, type_name(drawn), bytes_of(drawn));
}

void Trainer::State::restore(const CheckpointFile& file) {
  const torch::NoGradGuard no_grad;
  if (averaged)
    throw InvalidArgument("restore while the parameters are the flock's average: revert it or keep it first");
  for (std::size_t i = 0; i < parameters.size(); ++i) bring_home(i);
  SavedModel model(module);
  model.check(file);
  check_fits(*driver, file);
  // Which settings an optimizer has decides what it remembers.
  restore_settings(file);
  model.read(file);
  starling::restore(*driver, file);
  double steps = 0;
  file.read_into(kLossScale, std::as_writable_bytes(std::span(&loss_scale, 1)));
  file.read_into(kGoodSteps, std::as_writable_bytes(std::span(&steps, 1)));
  good_steps = static_cast<int>(steps);
  at::Generator generator = at::globalContext().defaultGenerator(torch::kCPU);
  const std::lock_guard lock(generator.mutex());
  const torch::Tensor drawn = generator.get_state();
  file.read_into(kGenerator, bytes_of(drawn));
  generator.set_state(drawn);
  for (const Bucket& bucket : buckets) bucket.fetch_x();
  // What the method remembers was saved with these parameters: nothing has to follow them.
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    versions[i] = parameters[i].parameter._version();
    note_computed(i);
  }
}

void Trainer::State::restore_settings(const CheckpointFile& file) {
  const std::vector<std::byte> bytes = file.read(kOptimizer);
  try {
    local->restore({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, optimizer_remembers());
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", file.path().string(), error.what()));
  }
  local->read_settings();
}

void Trainer::State::restore_mean(std::span<const CheckpointFile> files) {
  const torch::NoGradGuard no_grad;
  if (files.empty()) throw InvalidArgument("the mean of no models");
  if (driver->step() > 0)
    throw InvalidArgument(fmt::format(
        "restore_mean after {} steps: optimizer and method are to begin anew; make another trainer",
        driver->step()));
  SavedModel model(module);
  for (const CheckpointFile& file : files) model.check(file);
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
  driver->restart();
  driver->set_step(saved_step(files[0]));
  parameters_changed();
}

}  // namespace starling
