#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>

#include "starling/base/error.h"
#include "starling/base/nonfinite.h"
#include "starling/kernel/finite.h"
#include "starling/kernel/reduce.h"
#include "starling/train/trainer_state.h"

// The gradients' way from backward to where the update finds them. What is in .grad at step() counts: methods
// that average gradients have done so when backward() returns, as DDP has, so that .grad is the mean by then.
namespace starling {
namespace {

bool is_same(const torch::Tensor& left, const torch::Tensor& right) {
  return left.unsafeGetTensorImpl() == right.unsafeGetTensorImpl();
}

void check_dense(const torch::Tensor& gradient, const std::string& parameter) {
  if (gradient.defined() && gradient.layout() != torch::kStrided)
    throw InvalidArgument(
        fmt::format("the gradient of {} is sparse, which cannot be averaged; use a dense one "
                    "(Embedding: sparse = false)",
                    parameter));
}

// Some elements all over the tensor.
std::optional<std::uint64_t> sampled(const torch::Tensor& tensor) {
  if (!tensor.device().is_cpu() || !tensor.is_contiguous() || tensor.numel() == 0) return {};
  constexpr std::size_t kElements = 16;
  constexpr std::uint64_t kPrime = 0x9E37'79B9'7F4A'7C15;
  const auto* data = static_cast<const std::byte*>(tensor.data_ptr());
  const std::size_t size = tensor.element_size();
  const auto last = static_cast<std::size_t>(tensor.numel()) - 1;
  std::uint64_t all = 0;
  for (std::size_t k = 0; k < kElements; ++k) {
    std::uint64_t element = 0;
    std::memcpy(&element, data + last * k / (kElements - 1) * size, size);
    all = (all ^ element) * kPrime;
  }
  return all;
}

// A gradient that the user or autograd has put in the place of ours.
void copy_gradient(const torch::Tensor& from, const Placed& to) {
  check_dense(from, to.name);
  if (from.sizes() != to.parameter.sizes())
    throw InvalidArgument(fmt::format("the gradient of {} has {} elements, the parameter {}", to.name,
                                      from.numel(), to.parameter.numel()));
  torch::Tensor(to.gradient).copy_(from);
}

// The first element that is not finite, or "" where all are.
std::string describe_nonfinite(const torch::Tensor& flat) {
  const torch::Tensor found = flat.flatten().isfinite().logical_not().nonzero();
  if (found.numel() == 0) return {};
  const auto element = found[0].item<std::int64_t>();
  return fmt::format("{} at element {}", flat.flatten()[element].item<double>(), element);
}

}  // namespace

Trainer::State::Trace Trainer::State::Trace::of(const torch::Tensor& tensor, bool with_elements) {
  return {tensor._version(), with_elements ? sampled(tensor) : std::nullopt};
}
bool Trainer::State::Trace::fits(const torch::Tensor& tensor) const {
  return tensor._version() == version && (!elements || sampled(tensor) == elements);
}

void Trainer::State::note_used(std::size_t bucket, bool with_elements) {
  for (const std::size_t i : buckets[bucket].parameters)
    arrivals[i].used = Trace::of(parameters[i].gradient, with_elements);
}
// With eager, parameters change during backward.
void Trainer::State::note_computed(std::size_t i) {
  arrivals[i].computed = Trace::of(parameters[i].parameter, !options.eager);
}

bool Trainer::State::backward_has_run() const {
  return std::any_of(arrivals.begin(), arrivals.end(), [](const Arrival& one) { return one.count > 0; });
}

void Trainer::State::forget_arrivals() {
  for (Arrival& one : arrivals) one.count = 0;
  completed.assign(buckets.size(), false);
  gradients_finished = false;
  withheld = nullptr;
}

void Trainer::State::rethrow_failure() {
  if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
}

// Called by backward, for each gradient.
void Trainer::State::accumulated(std::size_t i, const torch::Tensor& part) {
  const std::lock_guard lock(mutex);
  const Stopwatch::Running running(inside);
  const torch::NoGradGuard no_grad;
  const Placed& placed = parameters[i];
  check_dense(part, placed.name);
  check_stepped(i);
  if (std::exchange(unscaled, false) && is_same(placed.parameter.grad(), placed.gradient))
    throw InvalidArgument(
        "backward() after step() and without the trainer's zero_grad(): with loss_scale the new gradients "
        "would be added to old ones of another scale");
  const int limit = options.accumulation;
  if (limit > 0 && arrivals[i].count >= limit)
    throw InvalidArgument(fmt::format(
        "backward() has computed the gradient of {} {} times since zero_grad(), but accumulation is {}; say "
        "how many there are per step",
        placed.name, arrivals[i].count + 1, limit));
  begin_backward();
  const int needed = std::max(1, limit);
  const int count = ++arrivals[i].count;
  arrivals[i].used.reset();
  note_computed(i);
  if (count > needed && withheld) std::rethrow_exception(withheld);
  if (failure) return;  // step() tells
  if (count > needed && completed[placed.bucket])
    throw InvalidArgument(
        fmt::format("backward() has computed the gradient of {} again after it was sent, while others are "
                    "still missing; call finish_gradients() (synchronize() in Python) after each backward()",
                    placed.name));
  if (count != needed) return;
  if (limit > 0) begin();
  if (!eager_or_early() || --incomplete[placed.bucket] > 0) return;
  complete(placed.bucket);
}

// The first gradient of a backward pass has come.
void Trainer::State::begin_backward() {
  if (gradients_finished) {
    // What follows is added to the mean, and averaged again with it.
    driver->withdraw_gradients();
    gradients_finished = false;
    completed.assign(buckets.size(), false);
    if (options.accumulation == 0)
      for (Arrival& one : arrivals) one.count = 0;
  }
  if ((!eager_or_early() && !options.after_backward) || !backward.expired()) return;
  for (std::size_t b = 0; b < buckets.size(); ++b)
    incomplete[b] = static_cast<std::size_t>(
        std::count_if(buckets[b].parameters.begin(), buckets[b].parameters.end(), [&](std::size_t i) {
          return parameters[i].parameter.requires_grad() &&
                 arrivals[i].count < std::max(1, options.accumulation);
        }));
  // torch drops the callback, and the token with it, when backward ends with an error.
  const auto token = std::make_shared<int>();
  backward = token;
  torch::autograd::Engine::get_default_engine().queue_callback([this, token] {
    backward.reset();
    end_backward();
    if (options.after_backward) options.after_backward();
  });
}

// All gradients of a bucket are there.
void Trainer::State::complete(std::size_t bucket) {
  completed[bucket] = true;
  begin();
  adopt_gradients(bucket);
  note_used(bucket, !driver->method().sends_gradients());
  if (raises_nonfinite() && driver->method().sends_gradients() && !withheld && !is_finite(bucket)) {
    try {
      raise_nonfinite(bucket, {});
    } catch (const NonFinite&) {
      withheld = std::current_exception();
    }
  }
  if (withheld || failure) return;  // step() tells
  try {
    if (options.eager)
      driver->finish_early(bucket);
    else
      driver->gradient(bucket);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const NonFinite&) {
    throw;
  } catch (...) {
    failure = std::current_exception();  // torch would make it a runtime_error
  }
}

void Trainer::State::end_backward() {
  if (!eager_or_early()) return;
  const std::lock_guard lock(mutex);
  const Stopwatch::Running running(inside);
  const torch::NoGradGuard no_grad;
  const bool all = std::all_of(incomplete.begin(), incomplete.end(), [](std::size_t n) { return n == 0; });
  for (std::size_t b = 0; all && b < buckets.size(); ++b)
    if (!completed[b]) complete(b);  // frozen ones
  if (!sends_early) return;
  if (failure) return;
  try {
    if (all && !withheld) {
      finish_gradients();
      return;
    }
    // Nothing may write to them from here on but the user, who must not.
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      if (completed[b])
        (*driver)[b].channel->wait();
      else
        adopt_gradients(b);
      note_used(b, true);
    }
  } catch (const InvalidArgument&) {
    throw;
  } catch (...) {
    failure = std::current_exception();
  }
}

void Trainer::State::finish_gradients() {
  const Stopwatch::Running running(inside);
  rethrow_failure();
  if (gradients_finished) return;
  begin();
  check_unedited();
  for (std::size_t b = 0; b < buckets.size(); ++b)
    if (!completed[b]) adopt_gradients(b);
  driver->gradients();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    Block& block = (*driver)[b];
    if (block.gradient_scale != 1)
      starling::scale(block.dtype(), block.gradient.data, block.gradient_scale, block.count());
    block.gradient_scale = 1;
    buckets[b].publish_gradient();
    for (const std::size_t i : buckets[b].parameters)
      if (block.segments[parameters[i].segment].active) arrivals[i].zero = kWritten;
  }
  gradients_finished = true;
  withheld = nullptr;
}

// A gradient that is not the view it was (it was assigned, or made by backward where there was none) is taken
// into it. Parameters without a gradient, or whose gradient is as zero_grad() has left it, are not updated.
void Trainer::State::adopt_gradients(std::size_t bucket) {
  const torch::NoGradGuard no_grad;
  for (const std::size_t i : buckets[bucket].parameters) {
    Placed& placed = parameters[i];
    Arrival& arrival = arrivals[i];
    const torch::Tensor current = placed.parameter.grad();
    if (!is_same(current, placed.gradient)) {
      if (current.defined())
        copy_gradient(current, placed);
      else
        placed.gradient.zero_();
      arrival.zero = current.defined() ? kWritten : placed.gradient._version();
      placed.parameter.mutable_grad() = placed.gradient;
    }
    (*driver)[bucket].segments[placed.segment].active = placed.gradient._version() != arrival.zero;
  }
  buckets[bucket].fetch_gradient();
  if (!gradients_finished && watch.wants_gradients(driver->step()))
    watch.note_gradient(bucket, buckets[bucket].gradient_block());
}

// The same for gradients that are what the method makes of them: those that others alone had are used, too.
void Trainer::State::take_edited(std::size_t bucket) {
  for (const std::size_t i : buckets[bucket].parameters) {
    const Segment before = (*driver)[bucket].segments[parameters[i].segment];
    if (before.active && is_same(parameters[i].parameter.grad(), parameters[i].gradient))
      arrivals[i].zero = kWritten;
  }
  adopt_gradients(bucket);
}

// Gradients that are on their way, or that eager has used, cannot be changed any more.
void Trainer::State::check_unedited() {
  if (gradients_finished || !eager_or_early() || !backward_has_run()) return;
  std::string without;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (arrivals[i].count == 0 && without.empty()) without = parameters[i].name;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Placed& placed = parameters[i];
    if (options.eager ? !completed[placed.bucket] : arrivals[i].count == 0) continue;
    if (!arrivals[i].used) continue;
    if (is_same(placed.parameter.grad(), placed.gradient) && arrivals[i].used->fits(placed.gradient))
      continue;
    if (options.eager)
      throw InvalidArgument(
          fmt::format("the gradient of {} was changed after backward(), but eager has used it inside "
                      "backward(); train without eager to change gradients",
                      placed.name));
    throw InvalidArgument(fmt::format(
        "the gradient of {} was changed after backward() and before {} has averaged it{}; call "
        "finish_gradients() (synchronize() in Python) after backward(), then change it",
        placed.name, options.method,
        without.empty() ? "" : fmt::format(", because this backward() has computed none for {}", without)));
  }
}

// A step of the optimizer alone would leave the others behind.
void Trainer::State::check_stepped(std::size_t i) const {
  if (arrivals[i].count == 0 || arrivals[i].computed.fits(parameters[i].parameter)) return;
  throw InvalidArgument(fmt::format(
      "rank {}: parameter {} was changed after backward(), and no step() of the trainer came. If the "
      "optimizer's own step() did it, this rank trains alone: call the trainer's step(), which updates and "
      "averages. If the change is wanted, call parameters_changed() after it",
      flock.rank(), parameters[i].name));
}

bool Trainer::State::is_finite(std::size_t bucket) const {
  const MutableBlock gradient = buckets[bucket].gradient_block();
  return all_finite(gradient.dtype, gradient.data, gradient.count);
}

// Before gradients are sent; where they are not, updates look.
void Trainer::State::check_finite() {
  for (std::size_t b = 0; b < buckets.size(); ++b)
    if (!completed[b] && !is_finite(b)) raise_nonfinite(b, {});
}

void Trainer::State::raise_nonfinite(std::size_t bucket, ConstBlock result) {
  const torch::NoGradGuard no_grad;
  const Bucket& own = buckets[bucket];
  const auto text = [&](const std::string& what, const Placed& placed, const std::string& value) {
    return fmt::format(
        "rank {}, training step {}: {} of {} is not finite ({}). To leave such steps out, "
        "set on_nonfinite to skip; to train on, to ignore",
        flock.rank(), driver->step(), what, placed.name, value);
  };
  const bool mean = gradients_finished && driver->method().averages_gradients();
  for (const std::size_t i : own.parameters)
    if (const std::string value = describe_nonfinite(view_at(own.gradient, parameters[i])); !value.empty())
      throw NonFinite(text(mean ? "the ranks' mean gradient" : "the gradient", parameters[i], value));
  if (result.data != nullptr) {
    const torch::Tensor next =
        torch::from_blob(const_cast<void*>(result.data), own.x.sizes(), own.x.options());
    for (const std::size_t i : own.parameters)
      if (const std::string value = describe_nonfinite(view_at(next, parameters[i])); !value.empty())
        throw NonFinite(text("the gradient is finite, but the update", parameters[i], value));
  }
  throw NonFinite(text("the update", parameters[own.parameters[0]], "or another one's of its bucket"));
}

}  // namespace starling
