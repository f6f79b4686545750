#include "starling/train/gradients.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>

#include "starling/base/error.h"
#include "starling/base/nonfinite.h"
#include "starling/train/device_tensors.h"

namespace starling::train {
namespace {

bool is_same(const torch::Tensor& left, const torch::Tensor& right) {
  return left.unsafeGetTensorImpl() == right.unsafeGetTensorImpl();
}

void check_dense(const torch::Tensor& gradient, const std::string& parameter) {
  if (gradient.defined() && gradient.layout() != torch::kStrided)
    throw InvalidArgument(
        fmt::format("the gradient of {} is sparse and cannot be averaged; use a dense one "
                    "(Embedding: sparse = false)",
                    parameter));
}

// A hash of a few elements spread over the tensor.
std::optional<std::uint64_t> sampled(const torch::Tensor& tensor) {
  if (!tensor.device().is_cpu() || tensor.numel() == 0 ||
      !tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense())
    return {};
  constexpr std::size_t kElements = 16;
  constexpr std::uint64_t kPrime = 0x9E37'79B9'7F4A'7C15;
  const auto* data = static_cast<const std::byte*>(tensor.data_ptr());
  const auto size = static_cast<std::size_t>(tensor.element_size());
  const auto last = static_cast<std::size_t>(tensor.numel()) - 1;
  std::uint64_t all = 0;
  for (std::size_t k = 0; k < kElements; ++k) {
    std::uint64_t element = 0;
    std::memcpy(&element, data + last * k / (kElements - 1) * size, size);
    all = (all ^ element) * kPrime;
  }
  return all;
}

// Copies a gradient that the program or autograd has put in place of the view of flat memory.
void copy_gradient(const torch::Tensor& from, const Placed& to) {
  check_dense(from, to.name);
  if (from.sizes() != to.parameter.sizes())
    throw InvalidArgument(fmt::format("the gradient of {} has {} elements, the parameter {}", to.name,
                                      from.numel(), to.parameter.numel()));
  torch::Tensor(to.gradient).copy_(from);
}

// Whether a gradient's elements have the order of those of `to`, so that they can be copied as they lie.
bool lies_alike(const torch::Tensor& from, const torch::Tensor& to) {
  return from.options().type_equal(to.options()) && from.device() == to.device() &&
         from.sizes() == to.sizes() && from.strides() == to.strides() &&
         to.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
}

}  // namespace

Gradients::Gradients(Replica& replica, SettingsWatch& watch, std::function<void()> begin_step)
    : replica_(replica),
      watch_(watch),
      begin_step_(std::move(begin_step)),
      arrivals_(replica.parameters.size()),
      incomplete_(replica.buckets.size(), 0),
      completed_(replica.buckets.size(), false),
      ungathered_(replica.buckets.size(), 0) {
  const TrainerOptions& options = replica.options;
  const bool through_host = std::ranges::any_of(replica.buckets, [](const Bucket& bucket) {
    return bucket.home_x.defined() && bucket.home_x.device() != bucket.x.device();
  });
  sends_early_ = replica.method->averages_gradients() && !through_host && !options.eager &&
                 options.loss_scale == 0 && options.on_nonfinite != "skip";
  for (std::size_t i = 0; i < arrivals_.size(); ++i)
    // it had a gradient before
    if (replica.parameters[i].gradient._version() > 0) arrivals_[i].zero = kWritten;
  replica.lost_hooks = true;
}

void Gradients::renew_hooks() {
  if (!std::exchange(replica_.lost_hooks, false)) return;
  hooks_ = std::make_unique<GradientHooks>(
      replica_.parameters, [this](std::size_t i, const torch::Tensor& part) { accumulated(i, part); });
}

Gradients::Trace Gradients::Trace::of(const torch::Tensor& tensor, bool with_elements) {
  return {tensor._version(), with_elements ? sampled(tensor) : std::nullopt};
}
bool Gradients::Trace::fits(const torch::Tensor& tensor) const {
  return tensor._version() == version && (!elements || sampled(tensor) == elements);
}

void Gradients::note_used(std::size_t bucket, bool with_elements) {
  for (const std::size_t i : replica_.buckets[bucket].parameters)
    arrivals_[i].used = Trace::of(replica_.parameters[i].gradient, with_elements);
}
// With eager, parameters change during backward, so their elements are not sampled.
void Gradients::note_computed(std::size_t i) {
  arrivals_[i].computed = Trace::of(replica_.parameters[i].parameter, !replica_.options.eager);
}
void Gradients::note_parameters() {
  for (std::size_t i = 0; i < arrivals_.size(); ++i) note_computed(i);
}

bool Gradients::backward_has_run() const {
  return std::any_of(arrivals_.begin(), arrivals_.end(), [](const Arrival& one) { return one.count > 0; });
}

bool Gradients::raises_nonfinite() const {
  return replica_.options.on_nonfinite == "raise" && replica_.options.loss_scale == 0 && !has_scaler_;
}

void Gradients::forget() {
  for (Arrival& one : arrivals_) one.count = 0;
  completed_.assign(completed_.size(), false);
  replica_.gradients_finished = false;
  withheld_ = nullptr;
}

void Gradients::rethrow_failure() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}
void Gradients::rethrow_withheld() const {
  if (withheld_ && raises_nonfinite()) std::rethrow_exception(withheld_);
}

void Gradients::zero() {
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    const Placed& placed = replica_.parameters[i];
    // On a device, backward makes new gradients, which is faster than to add to zeros. On the host, a program
    // that has zeroed gradients itself may have created new ones.
    if (replica_.on_device())
      placed.parameter.mutable_grad().reset();
    else if (!is_same(placed.parameter.grad(), placed.gradient))
      placed.parameter.mutable_grad() = placed.gradient;
    arrivals_[i].zero = placed.gradient._version();
  }
  if (!replica_.on_device())
    for (const Bucket& bucket : replica_.buckets) bucket.zero_gradient();
  for (std::size_t b = 0; b < ungathered_.size(); ++b)
    ungathered_[b] = replica_.on_device() ? replica_.buckets[b].parameters.size() : 0;
  forget();
  unscaled_ = false;
}

void Gradients::collect() {
  const std::lock_guard lock(mutex_);
  check_unedited();
  for (std::size_t b = 0; b < completed_.size(); ++b)
    if (replica_.gradients_finished)
      adopt_finished(b);
    else if (!completed_[b])
      adopt(b);
}

void Gradients::end_step() {
  forget();
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    const Placed& placed = replica_.parameters[i];
    // A second step() without zero_grad() uses the gradient again, as torch's does.
    if (replica_.block(placed.bucket).segments[placed.segment].active) arrivals_[i].zero = kWritten;
  }
}

// Called by backward, for each gradient.
void Gradients::accumulated(std::size_t i, const torch::Tensor& part) {
  const std::lock_guard lock(mutex_);
  const Stopwatch::Running running(replica_.busy);
  const kernel::DeviceScope scope(replica_.device_context());
  const torch::NoGradGuard no_grad;
  const Placed& placed = replica_.parameters[i];
  check_dense(part, placed.name);
  check_stepped(i);
  if (std::exchange(unscaled_, false) && is_same(placed.parameter.grad(), placed.gradient))
    throw InvalidArgument(
        "backward() after step() and without the trainer's zero_grad(): with loss_scale the new gradients "
        "would be added to old ones of another scale");
  const int limit = replica_.options.accumulation;
  if (limit > 0 && arrivals_[i].count >= limit)
    throw InvalidArgument(fmt::format(
        "backward() has computed the gradient of {} {} times since zero_grad(), but accumulation is {}; set "
        "accumulation to the number of backward() calls per step",
        placed.name, arrivals_[i].count + 1, limit));
  begin_backward();
  const int needed = std::max(1, limit);
  const int count = ++arrivals_[i].count;
  arrivals_[i].used.reset();
  note_computed(i);
  // Here, while the device computes the other gradients, rather than in step().
  if (count == 1 && ungathered_[placed.bucket] > 0 && --ungathered_[placed.bucket] == 0)
    gather(placed.bucket);
  if (count > needed && withheld_) std::rethrow_exception(withheld_);
  if (failure_) return;  // step() throws it
  if (count > needed && completed_[placed.bucket])
    throw InvalidArgument(
        fmt::format("backward() has computed the gradient of {} again after it was sent, while others are "
                    "still missing; call finish_gradients() (synchronize() in Python) after each backward()",
                    placed.name));
  if (count != needed) return;
  if (limit > 0) begin_step_();
  if (!eager_or_early() || --incomplete_[placed.bucket] > 0) return;
  complete(placed.bucket);
}

// Called at the first gradient of a backward pass.
void Gradients::begin_backward() {
  const TrainerOptions& options = replica_.options;
  if (replica_.gradients_finished) {
    // Further gradients are added to the mean and averaged again with it.
    replica_.driver->withdraw_gradients();
    replica_.gradients_finished = false;
    completed_.assign(completed_.size(), false);
    if (options.accumulation == 0)
      for (Arrival& one : arrivals_) one.count = 0;
  }
  if ((!eager_or_early() && !options.after_backward) || !backward_.expired()) return;
  for (std::size_t b = 0; b < incomplete_.size(); ++b) {
    const auto& members = replica_.buckets[b].parameters;
    incomplete_[b] =
        static_cast<std::size_t>(std::count_if(members.begin(), members.end(), [&](std::size_t i) {
          return replica_.parameters[i].parameter.requires_grad() &&
                 arrivals_[i].count < std::max(1, options.accumulation);
        }));
  }
  // torch drops the callback, and the token with it, when backward ends with an error.
  const auto token = std::make_shared<int>();
  backward_ = token;
  torch::autograd::Engine::get_default_engine().queue_callback([this, token] {
    backward_.reset();
    end_backward();
    if (replica_.options.after_backward) replica_.options.after_backward();
  });
}

// Called when all gradients of a bucket are complete.
void Gradients::complete(std::size_t bucket) {
  const bool sends = replica_.method->sends_gradients();
  completed_[bucket] = true;
  begin_step_();
  adopt(bucket);
  note_used(bucket, !sends);
  // On a device the mean is found to be not finite, one step later.
  if (raises_nonfinite() && sends && !withheld_ && !replica_.on_device() &&
      !replica_.gradient_is_finite(bucket)) {
    try {
      replica_.throw_nonfinite(bucket, {});
    } catch (const NonFinite&) {
      withheld_ = std::current_exception();
    }
  }
  if (withheld_ || failure_) return;  // step() throws it
  try {
    if (replica_.options.eager)
      replica_.driver->finish_early(bucket);
    else
      replica_.driver->gradient(bucket);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const NonFinite&) {
    throw;
  } catch (...) {
    failure_ = std::current_exception();  // torch would make it a runtime_error
  }
}

void Gradients::end_backward() {
  if (!eager_or_early()) return;
  const std::lock_guard lock(mutex_);
  const Stopwatch::Running running(replica_.busy);
  const kernel::DeviceScope scope(replica_.device_context());
  const torch::NoGradGuard no_grad;
  const bool all = std::all_of(incomplete_.begin(), incomplete_.end(), [](std::size_t n) { return n == 0; });
  for (std::size_t b = 0; all && b < completed_.size(); ++b)
    if (!completed_[b]) complete(b);  // buckets without gradients, e.g. of frozen parameters
  if (!sends_early_ || failure_) return;
  try {
    if (all && !withheld_) {
      finish();
      return;
    }
    // From here on only the program could write to them, which it must not do.
    for (std::size_t b = 0; b < completed_.size(); ++b) {
      if (completed_[b])
        replica_.block(b).channel->wait();
      else
        adopt(b);
      note_used(b, true);
    }
  } catch (const InvalidArgument&) {
    throw;
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void Gradients::finish() {
  const Stopwatch::Running running(replica_.busy);
  rethrow_failure();
  if (replica_.gradients_finished) return;
  begin_step_();
  check_unedited();
  for (std::size_t b = 0; b < completed_.size(); ++b)
    if (!completed_[b]) adopt(b);
  replica_.driver->gradients();
  for (std::size_t b = 0; b < completed_.size(); ++b) {
    Block& block = replica_.block(b);
    if (block.gradient_scale != 1) block.arithmetic().scale(block.gradient, block.gradient_scale);
    block.gradient_scale = 1;
    replica_.buckets[b].publish_gradient();
    for (const std::size_t i : replica_.buckets[b].parameters)
      if (block.segments[replica_.parameters[i].segment].active) arrivals_[i].zero = kWritten;
  }
  replica_.gradients_finished = true;
  withheld_ = nullptr;
}

// If .grad is not the view of flat memory (because the program assigned it, or backward created it), copies
// it into the view; on a device, all of a bucket at once.
void Gradients::gather(std::size_t bucket) {
  const torch::NoGradGuard no_grad;
  std::vector<kernel::GatheredPart> parts;
  std::vector<torch::Tensor> gathered;  // kept until the copy is enqueued
  for (const std::size_t i : replica_.buckets[bucket].parameters) {
    Placed& placed = replica_.parameters[i];
    if (is_same(placed.parameter.grad(), placed.gradient)) continue;
    const torch::Tensor current = placed.parameter.grad();
    const auto count = static_cast<std::size_t>(placed.parameter.numel());
    // A method may have written to the gap after the parameter.
    const std::size_t gap = replica_.block(bucket).segments[placed.segment].count - count;
    if (replica_.on_device() && gap > 0) parts.push_back({nullptr, placed.offset + count, gap});
    if (replica_.on_device() && !current.defined()) {
      parts.push_back({nullptr, placed.offset, count});
    } else if (replica_.on_device() && lies_alike(current, placed.gradient)) {
      parts.push_back({current.data_ptr(), placed.offset, count});
      gathered.push_back(current);
    } else if (current.defined()) {
      copy_gradient(current, placed);
    } else {
      placed.gradient.zero_();
    }
    arrivals_[i].zero = current.defined() ? kWritten : placed.gradient._version();
    placed.parameter.mutable_grad() = placed.gradient;
  }
  if (!parts.empty())
    replica_.block(bucket).arithmetic().gather(replica_.buckets[bucket].home_gradient_block(), parts);
}

// Parameters whose gradient is missing or unchanged since zero() are not updated.
void Gradients::adopt(std::size_t bucket) {
  const torch::NoGradGuard no_grad;
  gather(bucket);
  for (const std::size_t i : replica_.buckets[bucket].parameters) {
    const Placed& placed = replica_.parameters[i];
    replica_.block(bucket).segments[placed.segment].active = placed.gradient._version() != arrivals_[i].zero;
  }
  replica_.buckets[bucket].fetch_gradient();
  if (!replica_.gradients_finished && watch_.wants_gradients(replica_.driver->step())) {
    const torch::Tensor gradient = replica_.buckets[bucket].gradient.cpu();
    watch_.note_gradient(bucket,
                         std::span(static_cast<const std::byte*>(gradient.data_ptr()), gradient.nbytes()));
  }
}

// Like adopt(), after finish(): also activates gradients that only other ranks had.
void Gradients::adopt_finished(std::size_t bucket) {
  for (const std::size_t i : replica_.buckets[bucket].parameters) {
    const Placed& placed = replica_.parameters[i];
    if (replica_.block(bucket).segments[placed.segment].active &&
        is_same(placed.parameter.grad(), placed.gradient))
      arrivals_[i].zero = kWritten;
  }
  adopt(bucket);
}

// Gradients that are being sent, or that eager has used, must not change any more.
void Gradients::check_unedited() const {
  if (replica_.gradients_finished || !eager_or_early() || !backward_has_run()) return;
  const bool eager = replica_.options.eager;
  std::string without;
  for (std::size_t i = 0; i < arrivals_.size(); ++i)
    if (arrivals_[i].count == 0 && without.empty()) without = replica_.parameters[i].name;
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    const Placed& placed = replica_.parameters[i];
    if (eager ? !completed_[placed.bucket] : arrivals_[i].count == 0) continue;
    if (!arrivals_[i].used) continue;
    if (is_same(placed.parameter.grad(), placed.gradient) && arrivals_[i].used->fits(placed.gradient))
      continue;
    if (eager)
      throw InvalidArgument(
          fmt::format("the gradient of {} was changed after backward(), but eager has used it inside "
                      "backward(); train without eager to change gradients",
                      placed.name));
    throw InvalidArgument(fmt::format(
        "the gradient of {} was changed after backward() and before {} has averaged it{}; call "
        "finish_gradients() (synchronize() in Python) after backward(), then change it",
        placed.name, replica_.options.method,
        without.empty() ? "" : fmt::format(", because this backward() has computed none for {}", without)));
  }
}

void Gradients::check_stepped() const {
  for (std::size_t i = 0; i < arrivals_.size(); ++i) check_stepped(i);
}
void Gradients::check_stepped(std::size_t i) const {
  const Placed& placed = replica_.parameters[i];
  if (arrivals_[i].count == 0 || arrivals_[i].computed.fits(placed.parameter)) return;
  throw InvalidArgument(fmt::format(
      "rank {}: parameter {} was changed after backward(), and no step() of the trainer came. If the "
      "optimizer's own step() did it, this rank trains alone: call the trainer's step(), which updates and "
      "averages. If you want the change, call parameters_changed() after it",
      replica_.flock.rank(), placed.name));
}

void Gradients::check_finite() {
  for (std::size_t b = 0; b < completed_.size(); ++b)
    if (!completed_[b] && !replica_.gradient_is_finite(b)) replica_.throw_nonfinite(b, {});
}

}  // namespace starling::train
