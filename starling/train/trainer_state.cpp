#include "starling/train/trainer_state.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/method/flock_channel.h"
#include "starling/method/registry.h"

// A trainer's making, and what happens when somebody changes its parameters.
namespace starling {
namespace {

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

// Where parameters end, and where the gaps behind them do: zeros would spoil the scale of small parameters.
std::vector<std::size_t> ends_in(const Bucket& bucket, const std::vector<Placed>& all) {
  std::vector<std::size_t> ends;
  for (const std::size_t i : bucket.parameters) {
    ends.push_back(all[i].offset);
    ends.push_back(all[i].offset + static_cast<std::size_t>(all[i].parameter.numel()));
  }
  ends.push_back(static_cast<std::size_t>(bucket.x.numel()));
  return ends;
}

// Which optimizer a method needs is a matter of its moments.
void check(const Method& method, const std::string& name, const std::string& native) {
  const std::string needed = method.needs_optimizer();
  if (!needed.empty() && native.rfind(needed, 0) != 0)
    throw InvalidArgument(
        fmt::format("{} needs torch::optim::Adam or AdamW (without amsgrad) for its settings", name));
}

}  // namespace

DType Trainer::State::message_type() const {
  return choose_word<DType>("message type", options.message,
                            {{"float32", DType::float32},
                             {"float16", DType::float16},
                             {"bfloat16", DType::bfloat16},
                             {"int8", DType::int8}});
}

Trainer::State::State(Flock flock_, ModuleTensors module_, std::unique_ptr<LocalOptimizer> optimizer,
                      TrainerOptions options_)
    : flock(std::move(flock_)),
      module(std::move(module_)),
      local(std::move(optimizer)),
      options(std::move(options_)) {
  check(options);
  const DType message = message_type();
  const OnLoss policy = loss_policy(options);
  const MethodPtr method = make_method(options.method);
  check(*method, options.method, local->native());
  if (options.accumulation == 0)
    options.accumulation = method->sends_gradients() || options.eager ? 1 : std::numeric_limits<int>::max();
  if (message != DType::float32 && method->needs_exact_messages())
    throw InvalidArgument(
        fmt::format("{} needs exact messages, and {} would round them: {}; use float32 messages",
                    options.method, options.message, method->exact_messages_because()));
  check_message(*method, options.method, message);
  if (options.schedule) method->check(*options.schedule);
  const SchedulePtr schedule =
      options.schedule ? options.schedule : schedule_for(flock, *method, options.topology, options.seed);
  parameters = trained_parameters(module, local->groups());
  if (policy == OnLoss::reweight) flock.on_loss(policy);

  buckets = flatten(parameters, bucket_bytes());
  const Company company = agree_on(settings(schedule));
  make_driver(method, schedule, message);
  accumulations.assign(parameters.size(), 0);
  versions.assign(parameters.size(), 0);
  for (const Bucket& bucket : buckets) incomplete.push_back(bucket.parameters.size());
  loss_scale = options.loss_scale == 0 ? 1 : options.loss_scale;
  local->import_state(parameters, updates());
  if (company.somebody_goes_on())
    take_model(company.giver_of(flock.rank(), schedule));
  else if (options.broadcast_at_start)
    broadcast_parameters(0);
  parameters_changed();
  hooks_lost = true;
  renew_hooks();
}

// What ranks that train together have in common.
std::string Trainer::State::settings(const SchedulePtr& schedule) const {
  std::string text =
      fmt::format("{} on {} (seed {}), {} messages, on_loss {}; blocks of", options.method,
                  schedule ? schedule->name() : "nothing", options.seed, options.message, options.on_loss);
  for (const Bucket& bucket : buckets)
    text += fmt::format(" {} {}", bucket.x.numel(), torch::toString(bucket.x.scalar_type()));
  return text;
}

// The blocks, and how they talk on the flock as it is now.
void Trainer::State::make_driver(const MethodPtr& method, const SchedulePtr& schedule, DType message) {
  std::vector<std::unique_ptr<Block>> blocks;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::string name = fmt::format("{}/{}", options.name, b);
    const MutableBlock x = buckets[b].x_block();
    UpdatePtr update = method->make_update(x.dtype, x.count, buckets[b].parameters.size(), local->hypers());
    if (!update) update = local->make_update(parameters, buckets[b]);
    blocks.push_back(std::make_unique<Block>(
        name, x, buckets[b].gradient_block(), buckets[b].segments(parameters), std::move(update),
        make_flock_channel(flock, name,
                           {schedule, message, method->relay_rule(), ends_in(buckets[b], parameters)})));
    blocks.back()->hypers = local->hypers();
  }
  driver.emplace(method, std::move(blocks));
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

}  // namespace starling
