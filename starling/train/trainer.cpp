#include "starling/train/trainer.h"

#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/train/trainer_state.h"

namespace starling {
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
  in_step("zero_grad()", [&] { state_->zero_grad(true); });
}
void Trainer::zero_gradients() {
  in_step("zero_grad()", [&] { state_->zero_grad(false); });
}
void Trainer::begin() {
  in_step("begin()", [&] { state_->begin(); });
}
torch::Tensor Trainer::scale(const torch::Tensor& loss) const {
  return state_->options.loss_scale == 0 ? loss : loss * state_->loss_scale;
}
void Trainer::finish_gradients() {
  in_step("finish_gradients()", [&] { state_->finish_gradients(); });
  state_->finish_was_asked = true;
}
bool Trainer::step() {
  return in_step("step()", [&] { return state_->step(); });
}
void Trainer::skip() {
  in_step("skip()", [&] { state_->skip(); });
}

void Trainer::leave_overflows_to_scaler() {
  state_->has_scaler = true;
}

// The flock's errors know operations; the user knows calls and steps of training.
template <typename Body>
auto Trainer::in_step(const char* call, const Body& body) -> decltype(body()) {
  const Step step = state_->driver->step();
  try {
    return body();
  } catch (const PeerLost& error) {
    throw InStep(error, call, step);
  } catch (const TimedOut& error) {
    throw InStep(error, call, step);
  } catch (const Mismatch& error) {
    throw InStep(error, call, step);
  } catch (const Deadlock& error) {
    throw InStep(error, call, step);
  }
}

bool Trainer::sends_gradients() const {
  return state_->driver->method().sends_gradients();
}

std::int64_t Trainer::begin_epoch(std::int64_t batches) {
  if (batches < 0) throw InvalidArgument(fmt::format("an epoch of {} batches", batches));
  std::vector<std::int64_t> most = {batches};
  state_->flock.allreduce(most, Reduction::max, Name(state_->options.name + "/epoch"));
  state_->epoch_left = most[0];
  return most[0];
}
void Trainer::finish_epoch() {
  while (state_->epoch_left > 0) skip();
}

Step Trainer::steps() const {
  return state_->driver->step();
}
void Trainer::set_steps(Step steps) {
  if (steps < 0) throw InvalidArgument(fmt::format("set_steps({}): steps count from 0", steps));
  state_->driver->restart();
  state_->driver->set_step(steps);
}
double Trainer::loss_scale() const {
  return state_->loss_scale;
}
double Trainer::gradient_norm() const {
  return state_->last_gradient_norm();
}
double Trainer::waited() const {
  return state_->waited_before + state_->driver->waited();
}
Staleness Trainer::staleness() const {
  return state_->driver->staleness();
}
void Trainer::set_per_rank_settings(bool allowed) {
  state_->options.per_rank_settings = allowed;
  state_->begin_watching();
}
void Trainer::settle() {
  if (!state_->driver->begun()) state_->driver->settle();
}
double Trainer::combined() const {
  return std::max(0.0, state_->inside.seconds() - waited());
}
std::size_t Trainer::buckets() const {
  return state_->buckets.size();
}
std::size_t Trainer::parameter_count() const {
  std::size_t count = 0;
  for (const Placed& placed : state_->parameters) count += static_cast<std::size_t>(placed.parameter.numel());
  return count;
}
Flock& Trainer::flock() {
  return state_->flock;
}
void Trainer::export_optimizer_state() {
  state_->local->export_state(state_->parameters, state_->updates());
}
void Trainer::import_optimizer_state() {
  state_->local->read_settings();
  state_->local->import_state(state_->parameters, state_->updates());
}
std::vector<torch::Tensor> Trainer::flat_parameters() const {
  std::vector<torch::Tensor> all;
  for (const Bucket& bucket : state_->buckets) all.push_back(bucket.x);
  return all;
}
void Trainer::flat_parameters_changed() {
  for (const Bucket& bucket : state_->buckets) bucket.publish_x();
  parameters_changed();
}
bool Trainer::welcome(const std::function<SchedulePtr(Rank size)>& schedule_of_flock) {
  return state_->welcome(schedule_of_flock);
}
void Trainer::save(SavedParts& parts) {
  state_->save(parts);
}
void Trainer::restore(const CheckpointFile& file) {
  state_->restore(file);
}
void Trainer::restore_mean(std::span<const CheckpointFile> files) {
  state_->restore_mean(files);
}
void Trainer::parameters_changed() {
  if (state_->options.eager) state_->driver->restart();
  state_->parameters_changed();
}

}  // namespace starling
