#include "starling/train/trainer_state.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "starling/base/closest.h"
#include "starling/base/error.h"
#include "starling/method/flock_channel.h"
#include "starling/method/registry.h"
#include "starling/record/log.h"
#include "starling/topology/registry.h"

// A trainer's making, and what happens when somebody changes its parameters.
namespace starling {
namespace {

constexpr double kLargestBucket = 1e6;  // a terabyte
const std::string kOwnTopology = "flock";
const std::string kDefaultTopology = "one-peer-exponential";

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

OnPeerFailure loss_policy(const TrainerOptions& options) {
  return choose_word<OnPeerFailure>("on_peer_failure", options.on_peer_failure,
                                    {{"raise", OnPeerFailure::raise}, {"reweight", OnPeerFailure::reweight}});
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
  choose_word<int>("on_nonfinite", options.on_nonfinite, {{"raise", 0}, {"skip", 0}, {"ignore", 0}});
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

// The flock's own schedule for a method, in a flock of this setting.
SchedulePtr adapted_schedule(const Method& method, const MethodSetting& setting, const SchedulePtr& own,
                             std::uint64_t seed) {
  if (!method.needs_schedule()) return nullptr;
  SchedulePtr schedule = own;
  if (const std::string wanted = method.topology(own->name(), setting); wanted != own->name()) {
    try {
      schedule = make_schedule(wanted, setting.size, seed);
    } catch (const InvalidArgument&) {
      throw InvalidArgument(
          fmt::format("{} builds its schedule from a topology's name, and the flock's own, {}, has none that "
                      "can be made again; give the trainer a topology by name",
                      method.spec, own->name()));
    }
  }
  method.check(*schedule);
  return schedule;
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
  const OnPeerFailure policy = loss_policy(options);
  const MethodPtr method = make_method(options.method);
  check_optimizer(*method, local->native(), local->name(), *local->hypers());
  if (options.topology.empty()) options.topology = flock.schedule_is_set() ? kOwnTopology : kDefaultTopology;
  if (options.accumulation == 0 && options.eager) options.accumulation = 1;
  if (message != DType::float32 && method->needs_exact_messages())
    throw InvalidArgument(
        fmt::format("{} needs exact messages, and {} would round them: {}; use float32 messages",
                    options.method, options.message, method->exact_messages_because()));
  check_message(*method, options.method, message);
  const SchedulePtr schedule = find_schedule(*method);
  parameters = trained_parameters(module, local->groups());
  frozen = frozen_parameters(module, local->groups());
  if (policy == OnPeerFailure::reweight) flock.on_peer_failure(policy);

  buckets = flatten(parameters, bucket_bytes());
  const Company company = agree(schedule);
  make_driver(method, schedule, message);
  begin_watching();
  const bool on_host = std::none_of(buckets.begin(), buckets.end(),
                                    [](const Bucket& bucket) { return bucket.device_x.defined(); });
  // On a device they wait for step(), since torch's GradScaler may still unscale them.
  sends_early = method->averages_gradients() && on_host && !options.eager && options.loss_scale == 0 &&
                options.on_nonfinite != "skip";
  arrivals.resize(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].gradient._version() > 0) arrivals[i].zero = kWritten;  // there was one before
  versions.assign(parameters.size(), 0);
  incomplete.assign(buckets.size(), 0);
  completed.assign(buckets.size(), false);
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

// Also of a flock that newcomers have joined.
SchedulePtr Trainer::State::find_schedule(const Method& method) const {
  if (options.schedule) {
    method.check(*options.schedule);
    return options.schedule;
  }
  if (options.topology != kOwnTopology) return schedule_for(flock, method, options.topology, options.seed);
  SchedulePtr schedule =
      adapted_schedule(method, {flock.size(), flock.local_size()}, flock.schedule(), options.seed);
  if (!schedule || flock.rank() != 0) return schedule;
  if (const std::string warning = method.warning(*schedule); !warning.empty()) log(LogLevel::normal, warning);
  return schedule;
}

void Trainer::State::check_schedule(const MethodSetting& setting, const SchedulePtr& of_flock) const {
  const MethodPtr method = make_method(options.method);
  if (options.topology == kOwnTopology)
    adapted_schedule(*method, setting, of_flock, options.seed);
  else
    schedule_for(*method, setting, options.topology, options.seed);
}

void Trainer::State::begin_watching() {
  watch.start(flock, {options.name, driver->method().asynchronous(), !options.per_rank_settings});
}

// At the begin of every step, after the settings were read.
void Trainer::State::watch_settings() {
  if (watch.begin_step(driver->step(), *local))
    check_optimizer(driver->method(), local->native(), local->name(), *local->hypers());
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
                           {schedule, message, method->relay_rule(), ends_in(buckets[b], parameters),
                            "Trainer::step()", fmt::format("bucket {}", b), method->averages_gradients()})));
    blocks.back()->hypers = local->hypers();
    if (options.on_nonfinite != "ignore")
      blocks.back()->on_nonfinite = [this, b](ConstBlock result) { raise_nonfinite(b, result); };
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
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    versions[i] = parameters[i].parameter._version();
    note_computed(i);
  }
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
    watch_settings();
  }
  if (driver->begun()) return;
  local->read_settings();
  check_frozen();
  notice_changes();
  watch_settings();
  driver->begin();
}

void Trainer::State::check_frozen() const {
  for (const auto& [name, parameter] : frozen)
    if (parameter.requires_grad())
      throw InvalidArgument(fmt::format(
          "parameter {} requires a gradient since the trainer was made, which would not train it; "
          "on every rank, call export_optimizer_state() and make the trainer again (in Python: "
          "decentralize the original optimizer again)",
          name));
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
