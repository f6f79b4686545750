#include "starling/train/replica.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

#include "starling/base/error.h"
#include "starling/base/nonfinite.h"
#include "starling/codec/wire_format.h"
#include "starling/flock/byte_operations.h"
#include "starling/kernel/device.h"
#include "starling/method/flock_channel.h"
#include "starling/method/registry.h"
#include "starling/record/log.h"
#include "starling/topology/registry.h"
#include "starling/train/device_tensors.h"

namespace starling::train {
namespace {

const std::string kOwnTopology = "flock";
constexpr double kHostBucketMb = 4, kDeviceBucketMb = 100;

// The ends of the parameters and of the gaps after them, as separate ranges: zeros would spoil the scale of
// small parameters.
std::vector<std::size_t> ends_in(const Bucket& bucket, const std::vector<Placed>& all) {
  std::vector<std::size_t> ends;
  for (const std::size_t i : bucket.parameters) {
    ends.push_back(all[i].offset);
    ends.push_back(all[i].offset + static_cast<std::size_t>(all[i].parameter.numel()));
  }
  ends.push_back(static_cast<std::size_t>(bucket.x.numel()));
  return ends;
}

// The flock's own schedule, adapted to the method.
SchedulePtr adapted_schedule(const Method& method, const MethodSetting& setting, const SchedulePtr& own,
                             std::uint64_t seed) {
  if (!method.needs_schedule()) return nullptr;
  SchedulePtr schedule = own;
  if (const std::string wanted = method.topology(own->name(), setting); wanted != own->name()) {
    try {
      schedule = make_schedule(wanted, setting.size, seed);
    } catch (const InvalidArgument&) {
      throw InvalidArgument(
          fmt::format("{} builds its schedule from the name of a topology, and the flock's own schedule, {}, "
                      "cannot be made from its name; give the trainer a topology by name",
                      method.spec, own->name()));
    }
  }
  method.check(*schedule);
  return schedule;
}

// Whether both tensors, of the same sizes, have their elements in the same order in memory.
bool same_order(const torch::Tensor& a, const torch::Tensor& b) {
  for (std::int64_t i = 0; i < a.dim(); ++i)
    if (a.size(i) > 1 && a.stride(i) != b.stride(i)) return false;
  return true;
}

// The first element that is not finite, or "" if all are.
std::string describe_nonfinite(const torch::Tensor& flat) {
  const torch::Tensor found = flat.flatten().isfinite().logical_not().nonzero();
  if (found.numel() == 0) return {};
  const auto element = found[0].item<std::int64_t>();
  const auto value = flat.flatten()[element].item<double>();
  return fmt::format("{} at element {}", std::isnan(value) ? "nan" : fmt::format("{}", value), element);
}

}  // namespace

SchedulePtr find_schedule(const Flock& flock, const Method& method, const TrainerOptions& options) {
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

void check_schedule(const TrainerOptions& options, const MethodSetting& setting,
                    const SchedulePtr& of_flock) {
  const MethodPtr method = make_method(options.method);
  if (options.topology == kOwnTopology)
    adapted_schedule(*method, setting, of_flock, options.seed);
  else
    schedule_for(*method, setting, options.topology, options.seed);
}

Replica::Replica(Flock flock_, ModuleTensors module_, std::unique_ptr<LocalOptimizer> optimizer_,
                 TrainerOptions options_)
    : flock(std::move(flock_)),
      module(std::move(module_)),
      optimizer(std::move(optimizer_)),
      options(std::move(options_)) {
  check_options(options);
  const WireFormatPtr format = make_wire_format(options.message);
  method = make_method(options.method);
  check_optimizer(*method, optimizer->native(), optimizer->name(), *optimizer->hypers());
  if (options.topology.empty()) options.topology = flock.schedule_is_set() ? kOwnTopology : kDefaultTopology;
  if (options.accumulation == 0 && options.eager) options.accumulation = 1;
  if (!format->exact() && method->needs_exact_messages())
    throw InvalidArgument(
        fmt::format("{} needs exact messages, and {} would round them: {}; use float32 messages",
                    options.method, options.message, method->exact_messages_because()));
  check_message(*method, options.method, *format);
  choose_schedule();
  parameters = trained_parameters(module, optimizer->groups());
  frozen = frozen_parameters(module, optimizer->groups());
  at_start_ = module.parameters();
  if (options.master_weights) check_master_weights();
  if (flock.newcomers() > 0) adopt_failure_policy();  // the members have done this on their previous flock
  const std::string why = why_through_host();
  if (!why.empty() && flock.rank() == 0)
    log(LogLevel::normal, fmt::format("models on {} are averaged through the host's memory, since {}",
                                      parameters[0].parameter.device().str(), why));
  const bool on_device = why.empty() && is_on_device(parameters[0].parameter);
  if (!options.bucket_mb) options.bucket_mb = on_device ? kDeviceBucketMb : kHostBucketMb;
  buckets = flatten(parameters, bucket_bytes(), !why.empty(), options.master_weights);
  versions_.assign(parameters.size(), 0);
}

void Replica::choose_schedule() {
  schedule = find_schedule(flock, *method, options);
  flocks_schedule_ = schedule && !options.schedule ? flock.schedule() : nullptr;
}

void Replica::adopt_failure_policy() {
  if (failure_policy(options) == OnPeerFailure::reweight) flock.on_peer_failure(OnPeerFailure::reweight);
}

std::string Replica::operations_of(const std::string& purpose, const std::string& call) {
  const auto of_user = std::make_shared<UserCall>();
  of_user->call = call;
  if (driver) of_user->step = driver->step();
  std::string beginning = options.name + "/" + purpose;
  flock.set_user_call(beginning, of_user);
  return beginning;
}

void Replica::make_driver() {
  std::vector<std::unique_ptr<Block>> blocks;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::string name = fmt::format("{}/{}", options.name, b);
    const Buffer x = buckets[b].x_block();
    UpdatePtr update = method->make_update(x, buckets[b].parameters.size(), optimizer->hypers());
    if (!update) update = optimizer->make_update(parameters, buckets[b]);
    blocks.push_back(std::make_unique<Block>(
        name, x, buckets[b].gradient_block(), buckets[b].segments(parameters), std::move(update),
        make_flock_channel(flock, name,
                           {schedule, options.message, method->relay_rule(), ends_in(buckets[b], parameters),
                            options.caller + "step()", fmt::format("bucket {}", b),
                            method->averages_gradients(), method->needs().one_sided})));
    blocks.back()->hypers = optimizer->hypers();
    blocks.back()->rounded = buckets[b].rounded_block();
    if (options.on_nonfinite != "ignore")
      blocks.back()->on_nonfinite = [this, b](ConstBuffer result) { throw_nonfinite(b, result); };
  }
  driver.emplace(method, std::move(blocks));
}

void Replica::check_master_weights() const {
  if (optimizer->native().empty())
    throw InvalidArgument(fmt::format(
        "master_weights are for SGD, Adam and AdamW; {} steps the parameters themselves, in their own type",
        optimizer->name()));
  if (std::ranges::none_of(parameters, [](const Placed& placed) { return is_short(placed.parameter); }))
    throw InvalidArgument(
        "master_weights are for parameters of float16 or bfloat16, and this optimizer has none: convert the "
        "model before, or train without them");
}

// Why parameters on a device cannot be exchanged directly; "" if they can, or are on the host.
std::string Replica::why_through_host() const {
  const auto device = parameters[0].parameter.device();
  bool any = false;
  for (const Placed& placed : parameters) {
    any |= is_on_device(placed.parameter);
    if (placed.parameter.device() != device) return "the parameters are on several devices";
  }
  if (!any) return {};
  if (options.through_host) return "through_host is set";
  if (!ByteOperations(flock).has_messages_in(MemoryKind::cuda))
    return kernel::may_have_device() ? "not all ranks are on this host" : "there is no GPU driver";
  return kernel::why_no_device();
}

kernel::DeviceContext Replica::device_context() const {
  return on_device() ? torch_context(buckets[0].x) : kernel::device_context();
}

std::size_t Replica::bucket_bytes() const {
  if (!optimizer->takes_all_at_once() || !optimizer->native().empty())
    return static_cast<std::size_t>(*options.bucket_mb * 1e6);
  for (const Placed& placed : parameters)
    if (placed.parameter.options().type_equal(parameters[0].parameter.options()) == false)
      throw InvalidArgument(
          fmt::format("{} steps all parameters at once, so they must have one type and be on one device; {} "
                      "is {}, {} is {}",
                      optimizer->name(), parameters[0].name, parameters[0].parameter.toString(), placed.name,
                      placed.parameter.toString()));
  return std::numeric_limits<std::size_t>::max();
}

std::vector<Update*> Replica::updates() {
  std::vector<Update*> all;
  for (std::size_t b = 0; b < driver->size(); ++b) all.push_back(block(b).local_update.get());
  return all;
}

bool Replica::torch_keeps_state() {
  for (Update* update : updates())
    if (update->state().empty()) return true;
  return optimizer->native().empty();
}

std::string Replica::save_optimizer() {
  return optimizer->saved(torch_keeps_state());
}

void Replica::restore_optimizer(const std::string& text) {
  optimizer->restore(text, torch_keeps_state());
  optimizer->read_settings();
}

// The outgoing memory and the method's copies of the parameters must be updated.
void Replica::take_bucket(std::size_t bucket) {
  buckets[bucket].fetch_x();
  block(bucket).x_changed();
  method->x_replaced(block(bucket));
}

void Replica::take_all_parameters() {
  note_versions();
  for (std::size_t b = 0; b < buckets.size(); ++b) take_bucket(b);
}

std::vector<std::size_t> Replica::notice_changes() {
  std::vector<bool> changed(buckets.size(), false);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    rebind(i);
    const std::int64_t version = parameters[i].parameter._version();
    if (version != std::exchange(versions_[i], version)) changed[parameters[i].bucket] = true;
  }
  std::vector<std::size_t> all;
  for (std::size_t b = 0; b < buckets.size(); ++b)
    if (changed[b]) {
      take_bucket(b);
      all.push_back(b);
    }
  return all;
}

void Replica::check_finite(const std::vector<std::size_t>& changed) {
  if (options.on_nonfinite == "ignore") return;
  for (const std::size_t b : changed) {
    const Buffer x = buckets[b].x_block();
    if (kernel::arithmetic_in(x.memory).all_finite(x)) continue;
    for (const std::size_t i : buckets[b].parameters)
      if (const std::string value = describe_nonfinite(parameters[i].place); !value.empty())
        throw NonFinite(
            fmt::format("rank {}, before training step {}: the program has changed parameter {}, which is "
                        "not finite now ({})",
                        flock.rank(), driver->step(), parameters[i].name, value));
  }
}

void Replica::check_module() const {
  for (const auto& [name, parameter] : module.parameters()) {
    if (!parameter.requires_grad()) continue;
    const auto* own = parameter.unsafeGetTensorImpl();
    const auto same = [own](const auto& one) { return one.second.unsafeGetTensorImpl() == own; };
    if (std::any_of(at_start_.begin(), at_start_.end(), same)) continue;
    throw InvalidArgument(fmt::format(
        "parameter {} of the model is not one of those that it had when the trainer was made: a layer was "
        "added or replaced, which would not be trained. On every rank, make the optimizer and the trainer "
        "again, or copy values into the old layer",
        name));
  }
}

void Replica::notice_schedule() {
  if (!flocks_schedule_ || flock.schedule() == flocks_schedule_) return;
  flocks_schedule_ = nullptr;
  if (flock.rank() != 0) return;
  log(LogLevel::normal,
      fmt::format(
          "the flock's topology was set after this trainer was made; the trainer continues with {}. To "
          "train on {}, make the trainer again (in Python: decentralize again) on every rank",
          schedule->name(), flock.schedule()->name()));
}

double Replica::norm_of_model() {
  double squares = 0;
  for (const Bucket& bucket : buckets) {
    const Buffer x = bucket.x_block();
    const bool wide = x.dtype == DType::float32 || x.dtype == DType::float64;
    squares += wide ? kernel::arithmetic_in(x.memory).sum_of_squares(x)
                    : bucket.x.to(torch::kFloat64).square().sum().item<double>();
  }
  return std::sqrt(squares);
}

void Replica::note_versions() {
  for (std::size_t i = 0; i < parameters.size(); ++i) versions_[i] = parameters[i].parameter._version();
}

// One rank alone cannot undo what eager has sent.
void Replica::check_sent_parameters() {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    rebind(i);
    if (parameters[i].parameter._version() == versions_[i]) continue;
    throw InvalidArgument(
        fmt::format("parameter {} was changed by hand, but eager has already sent the parameters inside "
                    "backward; call parameters_changed() on every rank after such a change, or train without "
                    "eager",
                    parameters[i].name));
  }
}

void Replica::rebind(std::size_t i) {
  const Placed& placed = parameters[i];
  torch::Tensor parameter = placed.parameter;
  if (parameter.data_ptr() == placed.place.data_ptr()) return;
  if (parameter.sizes() != placed.place.sizes() || parameter.dtype() != placed.place.dtype())
    throw InvalidArgument(fmt::format(
        "the size or type of parameter {} has changed since the trainer was made; both must stay the same",
        placed.name));
  if (!noticed_order_ && !same_order(parameter, placed.place)) {
    noticed_order_ = true;
    if (flock.rank() == 0)
      log(LogLevel::normal,
          fmt::format("parameter {} has another order in memory (strides {}) than when the trainer was made "
                      "({}), and is put back into that one: convert the model, for example to channels-last, "
                      "before the trainer is made (in Python: before decentralize)",
                      placed.name, fmt::join(parameter.strides(), ", "),
                      fmt::join(placed.place.strides(), ", ")));
  }
  const torch::NoGradGuard no_grad;
  torch::Tensor(placed.place).copy_(parameter);
  parameter.set_data(placed.place);
  parameter.unsafeGetTensorImpl()->bump_version();
  lost_hooks = true;
}

void Replica::copy_model_to_x() {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Buffer model = method->model(block(b));
    const Buffer x = buckets[b].x_block();
    if (model.address() != x.address()) block(b).copy(x, model);
  }
}

void Replica::publish() {
  for (const Bucket& bucket : buckets) bucket.publish_x();
}

void Replica::publish_step() {
  for (std::size_t b = 0; b < buckets.size(); ++b)
    if (!std::exchange(block(b).wrote_rounded, false)) buckets[b].publish_x();
}

void Replica::require_own_model(const std::string& what) const {
  if (averaged)
    throw InvalidArgument(
        fmt::format("{} while the parameters are the flock's average: revert it or keep it first", what));
}

bool Replica::gradient_is_finite(std::size_t bucket) const {
  const Buffer gradient = buckets[bucket].gradient_block();
  return kernel::arithmetic_in(gradient.memory).all_finite(gradient);
}

void Replica::throw_nonfinite(std::size_t bucket, ConstBuffer result) {
  const torch::NoGradGuard no_grad;
  const Bucket& own = buckets[bucket];
  const auto text = [&](const std::string& what, const Placed& placed, const std::string& value) {
    return fmt::format(
        "rank {}, training step {}: {} of {} is not finite ({}). To skip the updates of such steps, set "
        "on_nonfinite to skip; to train with them, to ignore",
        flock.rank(), driver->step(), what, placed.name, value);
  };
  const bool mean = gradients_finished && method->averages_gradients();
  for (const std::size_t i : own.parameters)
    if (const std::string value = describe_nonfinite(view_at(own.gradient, parameters[i])); !value.empty())
      throw NonFinite(text(mean ? "the ranks' mean gradient" : "the gradient", parameters[i], value));
  if (result.address() != nullptr) {
    const torch::Tensor next = tensor_over(result, own.x.sizes(), own.x);
    for (const std::size_t i : own.parameters)
      if (const std::string value = describe_nonfinite(view_at(next, parameters[i])); !value.empty())
        throw NonFinite(
            text("the gradient is finite, but the update", parameters[i], value) +
            (schedule ? ". Or the value came from a neighbor's model: see what the other ranks say" : ""));
  }
  throw NonFinite(text("the update", parameters[own.parameters[0]], "or of another parameter of its bucket"));
}

}  // namespace starling::train
