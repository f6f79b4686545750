#include "starling/train/trainer.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "starling/base/error.h"
#include "starling/kernel/device.h"
#include "starling/train/averages.h"
#include "starling/train/device_room.h"
#include "starling/train/torch_optimizer.h"
#include "starling/train/trainer_checkpoint.h"
#include "starling/train/training_step.h"

namespace starling::train {
namespace {

/// Throws the same error with another text.
template <typename E>
[[noreturn]] void throw_with_text(E error, const std::string& text) {
  static_cast<Error&>(error) = Error(text);
  throw E(std::move(error));
}

template <typename E>
[[noreturn]] void throw_in_step(const E& error, const char* call, Step step, const std::string& advice = {}) {
  throw_with_text(error, fmt::format("{} of training step {}: {}{}", call, step, error.what(), advice));
}

}  // namespace

struct Trainer::State {
  State(Flock flock, ModuleTensors module, std::unique_ptr<LocalOptimizer> optimizer, TrainerOptions options);

  /// The device scope for code that works on blocks.
  kernel::DeviceScope scope() const { return kernel::DeviceScope(replica.device_context()); }

  // The flock's errors name operations; this replaces them by calls and steps of training, which programs
  // know.
  template <typename Body>
  auto in_step(const char* call, const Body& body) -> decltype(body()) {
    const kernel::DeviceScope device = scope();
    const Step number = replica.driver->step();
    try {
      return body();
    } catch (const PeerLost& error) {
      throw_in_step(error, call, number, step.advice_on_loss());
    } catch (const TimedOut& error) {
      throw_in_step(error, call, number);
    } catch (const Mismatch& error) {
      throw_in_step(error, call, number);
    } catch (const Deadlock& error) {
      throw_in_step(error, call, number);
    }
  }

  Replica replica;
  TrainerMembership membership;
  TrainingStep step;
  Averages averages;
  TrainerCheckpoint checkpoint;
};

Trainer::State::State(Flock flock, ModuleTensors module, std::unique_ptr<LocalOptimizer> optimizer,
                      TrainerOptions options)
    : replica(std::move(flock), std::move(module), std::move(optimizer), std::move(options)),
      membership(replica),
      step(replica, membership),
      averages(replica, step),
      checkpoint(replica, step) {
  const kernel::DeviceScope device = scope();
  const Cohort cohort = membership.begin();
  make_driver_with_room(replica);
  membership.start_watch();
  replica.optimizer->import_state(replica.parameters, replica.updates());
  if (cohort.has_members())
    membership.receive_model(step, cohort.giver_of(replica.flock.rank(), replica.schedule));
  else if (replica.options.broadcast_at_start)
    averages.broadcast_parameters(cohort.first());
  step.parameters_changed();
  step.gradients().renew_hooks();
}

Trainer::Trainer(Flock flock, torch::nn::Module& module, torch::optim::Optimizer& optimizer,
                 TrainerOptions options)
    : Trainer(std::move(flock), tensors_of(module), std::make_unique<TorchOptimizer>(optimizer),
              std::move(options)) {}
Trainer::Trainer(Flock flock, ModuleTensors module, std::unique_ptr<LocalOptimizer> optimizer,
                 TrainerOptions options)
    : state_(std::make_unique<State>(std::move(flock), std::move(module), std::move(optimizer),
                                     std::move(options))) {}
// Other ranks' memory that blocks still hold is released in the order of their device's work.
Trainer::~Trainer() {
  if (!state_) return;
  const kernel::DeviceScope device = state_->scope();
  state_.reset();
}
Trainer::Trainer(Trainer&&) noexcept = default;

void Trainer::zero_grad() {
  state_->in_step("zero_grad()", [&] { state_->step.zero_grad(true); });
}
void Trainer::zero_gradients() {
  state_->in_step("zero_grad()", [&] { state_->step.zero_grad(false); });
}
void Trainer::begin() {
  state_->in_step("begin()", [&] { state_->step.begin(); });
}
torch::Tensor Trainer::scale(const torch::Tensor& loss) const {
  return state_->step.scale(loss);
}
void Trainer::finish_gradients() {
  state_->in_step("finish_gradients()", [&] { state_->step.finish_gradients(); });
}
bool Trainer::step() {
  return state_->in_step("step()", [&] { return state_->step.step(); });
}
void Trainer::skip() {
  state_->in_step("skip()", [&] { state_->step.skip(); });
}
void Trainer::leave_overflows_to_scaler() {
  state_->step.leave_overflows_to_scaler();
}

std::int64_t Trainer::begin_epoch(std::int64_t batches) {
  if (batches < 0) throw InvalidArgument(fmt::format("begin_epoch({}): give 0 batches or more", batches));
  std::vector<std::int64_t> most = {batches};
  flock().allreduce(
      most, Reduction::max,
      Name(state_->replica.operations_of("epoch", state_->replica.options.caller + "begin_epoch()") +
           "/batches"));
  state_->step.begin_epoch(most[0], batches);
  return most[0];
}
void Trainer::finish_epoch() {
  state_->step.check_announced();
  while (state_->step.progress.epoch_left > 0) skip();
  state_->step.end_epoch();
}

Step Trainer::steps() const {
  return state_->replica.driver->step();
}
void Trainer::set_steps(Step steps) {
  if (steps < 0) throw InvalidArgument(fmt::format("set_steps({}): steps count from 0", steps));
  const kernel::DeviceScope device = state_->scope();
  state_->replica.driver->restart();
  state_->replica.driver->set_step(steps);
}
double Trainer::loss_scale() const {
  return state_->step.progress.loss_scale;
}
double Trainer::gradient_norm() const {
  const kernel::DeviceScope device = state_->scope();
  return state_->step.gradient_norm();
}
double Trainer::waited() const {
  return state_->replica.waited();
}
double Trainer::combined() const {
  return std::max(0.0, state_->replica.busy.seconds() - waited());
}
Staleness Trainer::staleness() const {
  return state_->replica.driver->staleness();
}
void Trainer::set_per_rank_settings(bool allowed) {
  state_->replica.options.per_rank_settings = allowed;
  state_->membership.start_watch();
}
void Trainer::settle() {
  const kernel::DeviceScope device = state_->scope();
  if (!state_->replica.driver->begun()) state_->replica.driver->settle();
}
bool Trainer::sends_gradients() const {
  return state_->step.gradients().sends_early();
}
std::size_t Trainer::buckets() const {
  return state_->replica.buckets.size();
}
std::size_t Trainer::parameter_count() const {
  std::size_t count = 0;
  for (const Placed& placed : state_->replica.parameters)
    count += static_cast<std::size_t>(placed.parameter.numel());
  return count;
}
Flock& Trainer::flock() {
  return state_->replica.flock;
}

bool Trainer::admit(const std::function<SchedulePtr(Rank size)>& schedule_of_flock) {
  const kernel::DeviceScope device = state_->scope();
  if (!state_->membership.admit(state_->step, schedule_of_flock)) return false;
  state_->checkpoint.flock_changed();
  return true;
}

void Trainer::broadcast_parameters(Rank root) {
  const kernel::DeviceScope device = state_->scope();
  state_->averages.broadcast_parameters(root);
}
void Trainer::broadcast_optimizer_state(Rank root) {
  const kernel::DeviceScope device = state_->scope();
  state_->averages.broadcast_optimizer_state(root);
}
void Trainer::export_optimizer_state() {
  const kernel::DeviceScope device = state_->scope();
  Replica& replica = state_->replica;
  replica.optimizer->export_state(replica.parameters, replica.updates());
}
void Trainer::import_optimizer_state() {
  const kernel::DeviceScope device = state_->scope();
  Replica& replica = state_->replica;
  replica.optimizer->read_settings();
  replica.optimizer->import_state(replica.parameters, replica.updates());
}
void Trainer::parameters_changed() {
  const kernel::DeviceScope device = state_->scope();
  if (state_->replica.options.eager) state_->replica.driver->restart();
  state_->step.parameters_changed();
}
std::vector<torch::Tensor> Trainer::flat_parameters() const {
  std::vector<torch::Tensor> all;
  for (const Bucket& bucket : state_->replica.buckets) all.push_back(bucket.x);
  return all;
}
void Trainer::flat_parameters_changed() {
  state_->replica.publish();
  parameters_changed();
}

void Trainer::save(const std::filesystem::path& folder, const SaveOptions& options) {
  const kernel::DeviceScope device = state_->scope();
  state_->checkpoint.save(folder, options);
}
std::optional<Resumed> Trainer::resume(const std::filesystem::path& folder, std::optional<Step> step) {
  const kernel::DeviceScope device = state_->scope();
  return state_->checkpoint.resume(folder, step);
}
void Trainer::save_parts(SavedParts& parts) {
  const kernel::DeviceScope device = state_->scope();
  state_->checkpoint.save_parts(parts);
}
void Trainer::restore(const CheckpointFile& file) {
  const kernel::DeviceScope device = state_->scope();
  state_->checkpoint.restore(file);
}
void Trainer::restore_mean(std::span<const CheckpointFile> files) {
  const kernel::DeviceScope device = state_->scope();
  state_->checkpoint.restore_mean(files);
}

double Trainer::consensus_distance() {
  const kernel::DeviceScope device = state_->scope();
  return state_->averages.consensus_distance();
}
Trainer::Averaged Trainer::global_average() {
  const kernel::DeviceScope device = state_->scope();
  state_->averages.average();
  return Averaged(*this);
}
void Trainer::Averaged::revert() {
  if (trainer_ == nullptr) return;
  const kernel::DeviceScope device = trainer_->state_->scope();
  std::exchange(trainer_, nullptr)->state_->averages.revert();
}
void Trainer::Averaged::keep() {
  if (trainer_ == nullptr) return;
  const kernel::DeviceScope device = trainer_->state_->scope();
  std::exchange(trainer_, nullptr)->state_->averages.keep();
}

}  // namespace starling::train
