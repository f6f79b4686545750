#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>

#include "starling/base/error.h"
#include "starling/kernel/reduce.h"
#include "starling/train/trainer_state.h"

// The way of the gradients through one step.
namespace starling {
namespace {

constexpr int kGoodStepsToDouble = 2000;

}  // namespace

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

}  // namespace starling
