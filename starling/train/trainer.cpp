#include "starling/train/trainer.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/train/averages.h"
#include "starling/train/torch_optimizer.h"
#include "starling/train/trainer_checkpoint.h"
#include "starling/train/training_step.h"

namespace starling::train {
namespace {

/// The same error, with another text.
template <typename E>
class InStep final : public E {
 public:
  InStep(const E& error, const char* call, Step step)
      : E(error), text_(fmt::format("{} of training step {}: {}", call, step, error.what())) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace

struct Trainer::State {
  State(Flock flock, ModuleTensors module, std::unique_ptr<LocalOptimizer> optimizer, TrainerOptions options);

  // The flock's errors name operations; programs know calls and steps of training.
  template <typename Body>
  auto in_step(const char* call, const Body& body) -> decltype(body()) {
    const Step number = replica.driver->step();
    try {
      return body();
    } catch (const PeerLost& error) {
      throw InStep(error, call, number);
    } catch (const TimedOut& error) {
      throw InStep(error, call, number);
    } catch (const Mismatch& error) {
      throw InStep(error, call, number);
    } catch (const Deadlock& error) {
      throw InStep(error, call, number);
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
  const Cohort cohort = membership.agree();
  replica.make_driver();
  membership.start_watch();
  replica.optimizer->import_state(replica.parameters, replica.updates());
  if (cohort.has_members())
    membership.receive_model(step, cohort.giver_of(replica.flock.rank(), replica.schedule));
  else if (replica.options.broadcast_at_start)
    averages.broadcast_parameters(0);
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
Trainer::~Trainer() = default;
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
  flock().allreduce(most, Reduction::max, Name(state_->replica.options.name + "/epoch"));
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
  state_->replica.driver->restart();
  state_->replica.driver->set_step(steps);
}
double Trainer::loss_scale() const {
  return state_->step.progress.loss_scale;
}
double Trainer::gradient_norm() const {
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
  if (!state_->replica.driver->begun()) state_->replica.driver->settle();
}
bool Trainer::sends_gradients() const {
  return state_->replica.method->sends_gradients();
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
  if (!state_->membership.admit(state_->step, schedule_of_flock)) return false;
  state_->checkpoint.flock_changed();
  return true;
}

void Trainer::broadcast_parameters(Rank root) {
  state_->averages.broadcast_parameters(root);
}
void Trainer::broadcast_optimizer_state(Rank root) {
  state_->averages.broadcast_optimizer_state(root);
}
void Trainer::export_optimizer_state() {
  Replica& replica = state_->replica;
  replica.optimizer->export_state(replica.parameters, replica.updates());
}
void Trainer::import_optimizer_state() {
  Replica& replica = state_->replica;
  replica.optimizer->read_settings();
  replica.optimizer->import_state(replica.parameters, replica.updates());
}
void Trainer::parameters_changed() {
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
  state_->checkpoint.save(folder, options);
}
std::optional<Resumed> Trainer::resume(const std::filesystem::path& folder, std::optional<Step> step) {
  return state_->checkpoint.resume(folder, step);
}
void Trainer::save_parts(SavedParts& parts) {
  state_->checkpoint.save_parts(parts);
}
void Trainer::restore(const CheckpointFile& file) {
  state_->checkpoint.restore(file);
}
void Trainer::restore_mean(std::span<const CheckpointFile> files) {
  state_->checkpoint.restore_mean(files);
}

double Trainer::consensus_distance() {
  return state_->averages.consensus_distance();
}
Trainer::Averaged Trainer::global_average() {
  state_->averages.average();
  return Averaged(*this);
}
void Trainer::Averaged::revert() {
  if (trainer_ != nullptr) trainer_->state_->averages.revert();
  trainer_ = nullptr;
}
void Trainer::Averaged::keep() {
  if (trainer_ != nullptr) trainer_->state_->averages.keep();
  trainer_ = nullptr;
}

}  // namespace starling::train
