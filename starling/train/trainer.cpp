#include "starling/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <torch/csrc/autograd/engine.h>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/kernel/reduce.h"
#include "starling/method/flock_channel.h"
#include "starling/method/registry.h"
#include "starling/train/trainer_state.h"

namespace starling {
namespace {

constexpr int kGoodStepsToDouble = 2000;
constexpr double kLargestBucket = 1e6;  // a terabyte

template <typename T>
T choose_word(const std::string& option, const std::string& word,
              const std::vector<std::pair<std::string, T>>& valid) {
  std::vector<std::string> names;
  for (const auto& [name, value] : valid) {
    if (name == word) return value;
    names.push_back(name);
  }
  throw InvalidArgument(unknown_name(option, word, names));
}

DType message_type(const TrainerOptions& options) {
  return choose_word<DType>(
      "message type", options.message,
      {{"float32", DType::float32}, {"float16", DType::float16}, {"bfloat16", DType::bfloat16}});
}

OnLoss loss_policy(const TrainerOptions& options) {
  return choose_word<OnLoss>("on_loss", options.on_loss,
                             {{"raise", OnLoss::raise}, {"reweight", OnLoss::reweight}});
}

void check(const TrainerOptions& options) {
  const auto need = [](bool good, const std::string& text) {
    if (!good) throw InvalidArgument(text);
  };
  need(options.bucket_mb > 0 && options.bucket_mb <= kLargestBucket,
       fmt::format("bucket_mb = {}: a bucket holds more than nothing and at most {:g}", options.bucket_mb,
                   kLargestBucket));
  need(options.accumulation >= 0,
       fmt::format("accumulation = {}: a step takes one backward() or more; 0 for any number",
                   options.accumulation));
  need(options.clip_norm >= 0 && std::isfinite(options.clip_norm),
       fmt::format("clip_norm = {}: a length, or 0 for no clipping", options.clip_norm));
  need(options.loss_scale >= 0 && std::isfinite(options.loss_scale),
       fmt::format("loss_scale = {}: a factor, or 0 for no scaling", options.loss_scale));
  need(!options.eager || options.clip_norm == 0,
       "eager and clip_norm exclude each other: eager updates a bucket before the others' gradients are "
       "known");
  need(!options.eager || options.loss_scale == 0,
       "eager and loss_scale exclude each other: eager updates a bucket before an overflow can be seen");
  choose_word<int>("buffers", options.buffers, {{"average", 0}, {"broadcast", 0}, {"local", 0}});
}

// Which optimizer a method needs is a matter of its moments.
void check(const Method& method, const std::string& name, const std::string& native) {
  const std::string needed = method.needs_optimizer();
  if (!needed.empty() && native.rfind(needed, 0) != 0)
    throw InvalidArgument(
        fmt::format("{} needs torch::optim::Adam or AdamW (without amsgrad) for its settings", name));
}

}  // namespace

Trainer::State::State(Flock flock_, ModuleTensors module_, std::unique_ptr<LocalOptimizer> optimizer,
                      TrainerOptions options_)
    : flock(std::move(flock_)),
      module(std::move(module_)),
      local(std::move(optimizer)),
      options(std::move(options_)) {
  check(options);
  const DType message = message_type(options);
  const OnLoss policy = loss_policy(options);
  const MethodPtr method = make_method(options.method);
  check(*method, options.method, local->native());
  if (options.accumulation == 0)
    options.accumulation = method->sends_gradients() || options.eager ? 1 : std::numeric_limits<int>::max();
  if (message != DType::float32 && method->needs_exact_messages())
    throw InvalidArgument(
        fmt::format("{} needs exact messages, and {} would round them: {}; use float32 messages",
                    options.method, options.message, method->exact_messages_because()));
  if (options.schedule) method->check(*options.schedule);
  const SchedulePtr schedule =
      options.schedule ? options.schedule : schedule_for(flock, *method, options.topology, options.seed);
  parameters = trained_parameters(module, local->groups());
  if (policy == OnLoss::reweight) flock.on_loss(policy);

  buckets = flatten(parameters, bucket_bytes());
  std::string settings =
      fmt::format("{} on {} (seed {}), {} messages, on_loss {}; blocks of", options.method,
                  schedule ? schedule->name() : "nothing", options.seed, options.message, options.on_loss);
  for (const Bucket& bucket : buckets)
    settings += fmt::format(" {} {}", bucket.x.numel(), torch::toString(bucket.x.scalar_type()));
  agree_on(settings);
  std::vector<std::unique_ptr<Block>> blocks;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::string name = fmt::format("{}/{}", options.name, b);
    const MutableBlock x = buckets[b].x_block();
    UpdatePtr update = method->make_update(x.dtype, x.count, buckets[b].parameters.size(), local->hypers());
    if (!update) update = local->make_update(parameters, buckets[b]);
    blocks.push_back(std::make_unique<Block>(
        name, x, buckets[b].gradient_block(), buckets[b].segments(parameters), std::move(update),
        make_flock_channel(flock, name, {schedule, message, method->relay_rule()})));
    blocks.back()->hypers = local->hypers();
  }
  driver.emplace(method, std::move(blocks));
  accumulations.assign(parameters.size(), 0);
  versions.assign(parameters.size(), 0);
  for (const Bucket& bucket : buckets) incomplete.push_back(bucket.parameters.size());
  loss_scale = options.loss_scale == 0 ? 1 : options.loss_scale;
  local->import_state(parameters, updates());
  if (options.broadcast_at_start) broadcast_parameters(0);
  parameters_changed();
  hooks_lost = true;
  renew_hooks();
}

std::size_t Trainer::State::bucket_bytes() const {
  if (!local->takes_all_at_once() || !local->native().empty())
    return static_cast<std::size_t>(options.bucket_mb * 1e6);
  for (const Placed& placed : parameters)
    if (placed.parameter.options().type_equal(parameters[0].parameter.options()) == false)
      throw InvalidArgument(
          fmt::format("{} steps all parameters at once, which must then be of one type and on one device; {} "
                      "is {}, {} is {}",
                      local->name(), parameters[0].name, parameters[0].parameter.toString(), placed.name,
                      placed.parameter.toString()));
  return std::numeric_limits<std::size_t>::max();
}

std::vector<Update*> Trainer::State::updates() {
  std::vector<Update*> all;
  for (std::size_t b = 0; b < driver->size(); ++b) all.push_back((*driver)[b].local_update.get());
  return all;
}

void Trainer::State::parameters_changed() {
  for (const Bucket& bucket : buckets) bucket.fetch_x();
  for (std::size_t i = 0; i < parameters.size(); ++i) versions[i] = parameters[i].parameter._version();
  for (std::size_t b = 0; b < driver->size(); ++b) {
    (*driver)[b].channel->forget_kept();
    driver->method().x_replaced((*driver)[b]);
  }
}

// Loading a module gives its parameters other memory, and other gradient accumulators.
void Trainer::State::bring_home(std::size_t i) {
  const Placed& placed = parameters[i];
  torch::Tensor parameter = placed.parameter;
  if (parameter.data_ptr() == placed.place.data_ptr()) return;
  if (parameter.sizes() != placed.place.sizes() || parameter.dtype() != placed.place.dtype())
    throw InvalidArgument(
        fmt::format("parameter {} has become another: sizes and types stay as they are when the trainer is "
                    "made",
                    placed.name));
  const torch::NoGradGuard no_grad;
  torch::Tensor(placed.place).copy_(parameter);
  parameter.set_data(placed.place);
  parameter.unsafeGetTensorImpl()->bump_version();
  // Nobody has told whether it has a gradient.
  accumulations[i] = std::max(accumulations[i], 1);
  hooks_lost = true;
}

void Trainer::State::renew_hooks() {
  if (!hooks_lost) return;
  hooks_lost = false;
  hooks = std::make_unique<GradientHooks>(
      parameters, [this](std::size_t i, const torch::Tensor& part) { accumulated(i, part); });
}

// What is kept for the next exchange, in outgoing memory or by the method, must be what the parameters are.
void Trainer::State::notice_changes() {
  std::vector<bool> changed(buckets.size(), false);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    bring_home(i);
    const std::int64_t version = parameters[i].parameter._version();
    if (version != std::exchange(versions[i], version)) changed[parameters[i].bucket] = true;
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (!changed[b]) continue;
    buckets[b].fetch_x();
    (*driver)[b].channel->forget_kept();
    driver->method().x_replaced((*driver)[b]);
  }
}

// The first thing of a step, whoever comes first: zero_grad(), backward or step().
void Trainer::State::begin() {
  if (averaged)
    throw InvalidArgument("a step while the parameters are the flock's average: revert it or keep it first");
  if (std::exchange(sent_ahead, false)) {
    local->read_settings();
    check_unchanged();
  }
  if (driver->begun()) return;
  local->read_settings();
  notice_changes();
  driver->begin();
}

// What eager has sent cannot be taken back by one rank alone.
void Trainer::State::check_unchanged() {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    bring_home(i);
    if (parameters[i].parameter._version() == versions[i]) continue;
    throw InvalidArgument(
        fmt::format("parameter {} was changed by hand, but eager has sent the parameters inside backward; "
                    "every rank calls parameters_changed() after such a change, or trains without eager",
                    parameters[i].name));
  }
}

void Trainer::State::zero_grad(bool and_begin) {
  const Stopwatch::Running running(inside);
  const bool fresh = std::all_of(accumulations.begin(), accumulations.end(), [](int n) { return n == 0; });
  if (!fresh && !driver->withdraw_gradients())
    throw InvalidArgument(fmt::format(
        "zero_grad() between backward() and step(): {} has used the gradients already; end the step first",
        options.eager ? "eager" : options.method));
  if (and_begin) begin();
  renew_hooks();
  // Whoever zeroed gradients in his own way may have made new ones.
  for (Placed& placed : parameters)
    if (placed.parameter.grad().unsafeGetTensorImpl() != placed.gradient.unsafeGetTensorImpl())
      placed.parameter.mutable_grad() = placed.gradient;
  for (const Bucket& bucket : buckets) bucket.zero_gradient();
  std::fill(accumulations.begin(), accumulations.end(), 0);
  for (std::size_t b = 0; b < buckets.size(); ++b) incomplete[b] = buckets[b].parameters.size();
}

// Called by backward.
void Trainer::State::accumulated(std::size_t i, const torch::Tensor& part) {
  const std::lock_guard lock(mutex);
  const Stopwatch::Running running(inside);
  const torch::NoGradGuard no_grad;
  const Placed& placed = parameters[i];
  tell_end_of_backward();
  if (part.defined() && part.layout() != torch::kStrided)
    throw InvalidArgument(
        fmt::format("the gradient of {} is sparse, which cannot be averaged; use a dense one "
                    "(Embedding: sparse = false)",
                    placed.name));
  const int count = ++accumulations[i];
  if (count > options.accumulation)
    throw InvalidArgument(fmt::format(
        "backward() has computed the gradient of {} {} times since zero_grad(), but accumulation is {}; say "
        "how many there are per step",
        placed.name, count, options.accumulation));
  if (count < options.accumulation || --incomplete[placed.bucket] > 0) return;
  begin();
  adopt_gradients(placed.bucket);
  if (options.eager)
    driver->finish_early(placed.bucket);
  else if (options.loss_scale == 0 && !holds_back(placed.bucket))
    driver->gradient(placed.bucket);
}

void Trainer::State::tell_end_of_backward() {
  if (!options.after_backward || !backward.expired()) return;
  // torch drops the callback, and the token with it, when backward ends with an error.
  const auto token = std::make_shared<int>();
  backward = token;
  torch::autograd::Engine::get_default_engine().queue_callback([this, token] {
    backward.reset();
    options.after_backward();
  });
}

// Gradients on a device may still be unscaled by hand (torch's GradScaler) before they are anybody's.
bool Trainer::State::holds_back(std::size_t bucket) const {
  return buckets[bucket].device_x.defined();
}

void Trainer::State::finish_gradients() {
  const Stopwatch::Running running(inside);
  begin();
  for (std::size_t b = 0; b < buckets.size(); ++b)
    if (incomplete[b] > 0 || holds_back(b)) adopt_gradients(b);
  driver->gradients();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    Block& block = (*driver)[b];
    if (block.gradient_scale != 1)
      starling::scale(block.dtype(), block.gradient.data, block.gradient_scale, block.count());
    block.gradient_scale = 1;
    buckets[b].publish_gradient();
  }
  gradients_finished = true;
}

// A gradient that is not the view it was (after zero_grad with set_to_none) is taken into it; what has no
// gradient in this step is not updated.
void Trainer::State::adopt_gradients(std::size_t bucket) {
  const torch::NoGradGuard no_grad;
  for (const std::size_t i : buckets[bucket].parameters) {
    Placed& placed = parameters[i];
    (*driver)[bucket].segments[placed.segment].active = accumulations[i] > 0;
    const torch::Tensor& current = placed.parameter.grad();
    if (current.unsafeGetTensorImpl() == placed.gradient.unsafeGetTensorImpl()) continue;
    if (current.defined())
      placed.gradient.copy_(current);
    else
      placed.gradient.zero_();
    placed.parameter.mutable_grad() = placed.gradient;
  }
  buckets[bucket].fetch_gradient();
}

bool Trainer::State::step() {
  return end_step(false);
}

void Trainer::State::skip() {
  const Stopwatch::Running running(inside);
  const bool fresh = std::all_of(accumulations.begin(), accumulations.end(), [](int n) { return n == 0; });
  begin();
  if (fresh) zero_grad(true);
  if (!fresh && options.eager)
    throw InvalidArgument("skip() after backward(): eager has updated already; skip() takes its place");
  // Where gradients have been sent already, they count.
  for (std::size_t b = 0; b < buckets.size(); ++b) (*driver)[b].skipped = true;
  end_step(true);
}

bool Trainer::State::end_step(bool skipping) {
  const Stopwatch::Running running(inside);
  begin();
  local->read_settings();
  if (!options.eager) notice_changes();
  renew_hooks();
  {
    const std::lock_guard lock(mutex);
    for (std::size_t b = 0; b < buckets.size(); ++b)
      if (gradients_finished)
        buckets[b].fetch_gradient();
      else if (incomplete[b] > 0 || holds_back(b))
        adopt_gradients(b);
  }
  const bool good = measure_gradients(skipping);
  finish_step();
  return good;
}

// Clips, and finds overflows; false when this rank does not update.
bool Trainer::State::measure_gradients(bool skipping) {
  if (options.clip_norm == 0 && options.loss_scale == 0) return true;
  // With a loss scale no bucket has been sent yet: methods that send gradients send them unscaled.
  if (options.loss_scale != 0) {
    for (std::size_t b = 0; b < buckets.size(); ++b)
      starling::scale(dtype_of_tensor(buckets[b].gradient), buckets[b].gradient.data_ptr(), 1 / loss_scale,
                      static_cast<std::size_t>(buckets[b].gradient.numel()));
  }
  driver->gradients();
  double squares = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Block& block = (*driver)[b];
    const torch::Tensor& gradient = buckets[b].gradient;
    const bool wide = block.dtype() == DType::float32 || block.dtype() == DType::float64;
    const double sum = wide ? sum_of_squares(block.dtype(), block.gradient.data, block.count())
                            : gradient.to(torch::kFloat64).square().sum().item<double>();
    squares += sum * block.gradient_scale * block.gradient_scale;
  }
  gradient_norm = std::sqrt(squares);
  if (options.loss_scale != 0 && !std::isfinite(gradient_norm)) {
    loss_scale = std::max(loss_scale / 2, 1.0);
    good_steps = 0;
    for (std::size_t b = 0; b < buckets.size(); ++b) (*driver)[b].skipped = true;
    return false;
  }
  if (options.loss_scale != 0 && !skipping && ++good_steps == kGoodStepsToDouble) {
    loss_scale *= 2;
    good_steps = 0;
  }
  if (options.clip_norm > 0)
    for (std::size_t b = 0; b < buckets.size(); ++b)
      (*driver)[b].gradient_scale *= std::min(1.0, options.clip_norm / (gradient_norm + 1e-6));
  return true;
}

void Trainer::State::finish_step() {
  const torch::NoGradGuard no_grad;
  driver->finish();
  for (const Bucket& bucket : buckets) bucket.publish_x();
  std::fill(accumulations.begin(), accumulations.end(), 0);
  for (std::size_t b = 0; b < buckets.size(); ++b) incomplete[b] = buckets[b].parameters.size();
  if (epoch_left > 0) --epoch_left;
  gradients_finished = false;
  // Autograd shall notice if a graph outlives the parameters it was computed with.
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].parameter.unsafeGetTensorImpl()->bump_version();
    versions[i] = parameters[i].parameter._version();
  }
  if (options.eager) driver->begin();
  sent_ahead = options.eager;
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
  state_->zero_grad(true);
}
void Trainer::zero_gradients() {
  state_->zero_grad(false);
}
void Trainer::begin() {
  state_->begin();
}
torch::Tensor Trainer::scale(const torch::Tensor& loss) const {
  return state_->options.loss_scale == 0 ? loss : loss * state_->loss_scale;
}
void Trainer::finish_gradients() {
  state_->finish_gradients();
}
bool Trainer::step() {
  return state_->step();
}
void Trainer::skip() {
  state_->skip();
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
  return state_->gradient_norm;
}
double Trainer::waited() const {
  return state_->driver->waited();
}
Staleness Trainer::staleness() const {
  return state_->driver->staleness();
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
