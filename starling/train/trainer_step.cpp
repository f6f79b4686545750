#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/kernel/reduce.h"
#include "starling/record/log.h"
#include "starling/train/trainer_state.h"

// One step: zero_grad(), and what follows backward.
namespace starling {
namespace {

constexpr int kGoodStepsToDouble = 2000;

bool is_power_of_two(std::int64_t n) {
  return (n & (n - 1)) == 0;
}

}  // namespace

void Trainer::State::zero_grad(bool and_begin) {
  const Stopwatch::Running running(inside);
  rethrow_failure();
  const bool run = backward_has_run();
  if (run && !options.eager)
    for (std::size_t i = 0; i < parameters.size(); ++i) check_stepped(i);
  const bool averaged_already = gradients_finished && driver->method().sends_gradients();
  if ((run || gradients_finished) && (averaged_already || !driver->withdraw_gradients()))
    throw InvalidArgument(fmt::format(
        "zero_grad() between backward() and step(): {} has used the gradients already. Call step() first; "
        "where another model's loss goes through this one, detach() between them",
        options.eager ? "eager" : options.method));
  if (and_begin) begin();
  renew_hooks();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    // Whoever zeroed gradients in his own way may have made new ones.
    if (parameters[i].parameter.grad().unsafeGetTensorImpl() != parameters[i].gradient.unsafeGetTensorImpl())
      parameters[i].parameter.mutable_grad() = parameters[i].gradient;
    arrivals[i].zero = parameters[i].gradient._version();
  }
  for (const Bucket& bucket : buckets) bucket.zero_gradient();
  forget_arrivals();
  unscaled = false;
  zeroed = true;
}

bool Trainer::State::step() {
  return end_step(false);
}

void Trainer::State::skip() {
  const Stopwatch::Running running(inside);
  const bool fresh = !backward_has_run();
  begin();
  if (fresh && !gradients_finished) zero_grad(true);
  if (!fresh && options.eager)
    throw InvalidArgument("skip() after backward(): eager has updated already; skip() takes its place");
  if (!fresh && gradients_finished && !finish_was_asked && sends_early)
    throw InvalidArgument(fmt::format(
        "skip() after backward(): {} has averaged this rank's gradients already, and the others use them. "
        "Call skip() in place of backward(); where every rank skips, finish_gradients() before it",
        options.method));
  // Where gradients have been sent already, they count.
  for (std::size_t b = 0; b < buckets.size(); ++b) (*driver)[b].skipped = true;
  end_step(true);
}

bool Trainer::State::end_step(bool skipping) {
  const Stopwatch::Running running(inside);
  const torch::NoGradGuard no_grad;
  rethrow_failure();
  if (withheld && raises_nonfinite() && !skipping) std::rethrow_exception(withheld);
  begin();
  local->read_settings();
  check_frozen();
  if (!options.eager) notice_changes();
  renew_hooks();
  {
    const std::lock_guard lock(mutex);
    check_unedited();
    for (std::size_t b = 0; b < buckets.size(); ++b)
      if (gradients_finished)
        take_edited(b);
      else if (!completed[b])
        adopt_gradients(b);
  }
  gradient_norm.reset();
  if (!skipping && raises_nonfinite() && !gradients_finished && driver->method().sends_gradients())
    check_finite();
  const bool good = measure_gradients(skipping);
  finish_step();
  return good;
}

double Trainer::State::norm_of_gradients() {
  double squares = 0;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Block& block = (*driver)[b];
    const torch::Tensor& gradient = buckets[b].gradient;
    const bool wide = block.dtype() == DType::float32 || block.dtype() == DType::float64;
    const double sum = wide ? sum_of_squares(block.dtype(), block.gradient.data, block.count())
                            : gradient.to(torch::kFloat64).square().sum().item<double>();
    squares += sum * block.gradient_scale * block.gradient_scale;
  }
  return std::sqrt(squares);
}

// Where no step has measured it, from the gradients that are still there.
double Trainer::State::last_gradient_norm() {
  if (gradient_norm) return *gradient_norm;
  if (zeroed && driver->step() > 0 && !backward_has_run())
    throw InvalidArgument(
        "gradient_norm() after zero_grad(): the last step's gradients are gone; ask before zero_grad(), or "
        "set clip_norm, which keeps the norm");
  for (const Bucket& bucket : buckets) bucket.fetch_gradient();
  return norm_of_gradients();
}

// Clips, and finds overflows; false when this rank does not update.
bool Trainer::State::measure_gradients(bool skipping) {
  bool good = true;
  const auto leave_out = [&] {
    for (std::size_t b = 0; b < buckets.size(); ++b) (*driver)[b].skipped = true;
    good = false;
  };
  if (options.on_nonfinite == "skip" && options.loss_scale == 0 && !skipping) {
    for (std::size_t b = 0; b < buckets.size() && good; ++b)
      if (!is_finite(b)) leave_out();
    if (!good && is_power_of_two(++skipped_steps))
      log(LogLevel::normal,
          fmt::format("rank {} leaves its update of training step {} out: its gradients are "
                      "not finite, {} times so far",
                      flock.rank(), driver->step(), skipped_steps));
  }
  if (options.clip_norm == 0 && options.loss_scale == 0) return good;
  // With a loss scale no bucket has been sent yet: methods that send gradients send them unscaled.
  if (options.loss_scale != 0 && !std::exchange(unscaled, true)) {
    for (std::size_t b = 0; b < buckets.size(); ++b)
      starling::scale(dtype_of_tensor(buckets[b].gradient), buckets[b].gradient.data_ptr(), 1 / loss_scale,
                      static_cast<std::size_t>(buckets[b].gradient.numel()));
  }
  driver->gradients();
  gradient_norm = norm_of_gradients();
  if (options.loss_scale != 0 && !std::isfinite(*gradient_norm)) {
    loss_scale = std::max(loss_scale / 2, 1.0);
    good_steps = 0;
    leave_out();
    return false;
  }
  if (good && !skipping && raises_nonfinite() && !std::isfinite(*gradient_norm))
    for (std::size_t b = 0; b < buckets.size(); ++b)
      if (!is_finite(b)) raise_nonfinite(b, {});
  if (options.loss_scale != 0 && !skipping && ++good_steps == kGoodStepsToDouble) {
    loss_scale *= 2;
    good_steps = 0;
  }
  if (options.clip_norm > 0)
    for (std::size_t b = 0; b < buckets.size(); ++b)
      (*driver)[b].gradient_scale *= std::min(1.0, options.clip_norm / (*gradient_norm + 1e-6));
  return good;
}

void Trainer::State::finish_step() {
  const torch::NoGradGuard no_grad;
  driver->finish();
  for (const Bucket& bucket : buckets) bucket.publish_x();
  forget_arrivals();
  finish_was_asked = false;
  zeroed = false;
  if (epoch_left > 0) --epoch_left;
  // Autograd shall notice if a graph outlives the parameters it was computed with.
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Placed& placed = parameters[i];
    placed.parameter.unsafeGetTensorImpl()->bump_version();
    versions[i] = placed.parameter._version();
    // A second step() without zero_grad() uses the gradient again, as torch's does.
    if ((*driver)[placed.bucket].segments[placed.segment].active) arrivals[i].zero = kWritten;
  }
  if (options.eager) driver->begin();
  sent_ahead = options.eager;
}

}  // namespace starling
