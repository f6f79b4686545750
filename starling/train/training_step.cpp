#include "starling/train/training_step.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "starling/base/error.h"
#include "starling/base/integer.h"
#include "starling/record/log.h"

namespace starling::train {
namespace {

constexpr int kGoodStepsToDouble = 2000;
constexpr int kManyDiscarded = 10;

}  // namespace

TrainingStep::TrainingStep(Replica& replica, TrainerMembership& membership)
    : replica_(replica), watch_(membership.watch()), gradients_(replica, membership.watch(), [this] {
        warn_of_step_beyond_epoch();
        begin();
      }) {
  if (replica.options.loss_scale != 0) progress.loss_scale = replica.options.loss_scale;
}

void TrainingStep::begin() {
  replica_.require_own_model("a step");
  if (std::exchange(sent_ahead_, false)) {
    replica_.optimizer->read_settings();
    replica_.check_sent_parameters();
    compare_settings();
  }
  if (replica_.driver->begun()) return;
  replica_.optimizer->read_settings();
  check_frozen();
  replica_.check_finite(replica_.notice_changes());
  compare_settings();
  replica_.driver->begin();
}

void TrainingStep::check_frozen() const {
  for (const auto& [name, parameter] : replica_.frozen)
    if (parameter.requires_grad())
      throw InvalidArgument(fmt::format(
          "parameter {} was frozen when the trainer was made and requires a gradient now, but would not be "
          "trained; on every rank, call export_optimizer_state() and make the trainer again (in Python: "
          "decentralize the original optimizer again)",
          name));
}

void TrainingStep::compare_settings() {
  const LocalOptimizer& optimizer = *replica_.optimizer;
  const Step step = replica_.driver->step();
  if (step != std::exchange(checked_, step) && SettingsWatch::is_usual_check(step)) {
    replica_.check_module();
    replica_.notice_schedule();
  }
  if (watch_.begin_step(step, optimizer, [this] { return replica_.norm_of_model(); }))
    check_optimizer(*replica_.method, optimizer.native(), optimizer.name(), *optimizer.hypers());
}

void TrainingStep::zero_grad(bool and_begin) {
  const Stopwatch::Running running(replica_.busy);
  const TrainerOptions& options = replica_.options;
  gradients_.rethrow_failure();
  const bool run = gradients_.backward_has_run();
  if (run && !options.eager) gradients_.check_stepped();
  const bool averaged_already = replica_.gradients_finished && replica_.method->sends_gradients();
  if ((run || replica_.gradients_finished) && (averaged_already || !replica_.driver->withdraw_gradients()))
    throw InvalidArgument(fmt::format(
        "zero_grad() between backward() and step(): {} has used the gradients already. Call step() first; "
        "if the loss of another model goes through this one, detach() between them",
        options.eager ? "eager" : options.method));
  if (run) note_discarded();
  if (and_begin) begin();
  gradients_.renew_hooks();
  gradients_.zero();
  zeroed_ = true;
}

void TrainingStep::note_discarded() {
  if (++discarded_ != kManyDiscarded) return;
  log(LogLevel::normal,
      fmt::format("rank {}: backward() and zero_grad() came {} times in a row without a step, so the model "
                  "stays as it is at step {}; call the trainer's step(), or skip(), after each batch",
                  replica_.flock.rank(), discarded_, replica_.driver->step()));
}

void TrainingStep::finish_gradients() {
  gradients_.finish();
  finish_was_asked_ = true;
}

bool TrainingStep::step() {
  return end_step(false);
}

void TrainingStep::skip() {
  const Stopwatch::Running running(replica_.busy);
  const bool fresh = !gradients_.backward_has_run();
  begin();
  if (fresh && !replica_.gradients_finished) zero_grad(true);
  if (!fresh && replica_.options.eager)
    throw InvalidArgument(
        "skip() after backward(): eager has updated already; call skip() instead of backward()");
  if (!fresh && replica_.gradients_finished && !finish_was_asked_ && gradients_.sends_early())
    throw InvalidArgument(fmt::format(
        "skip() after backward(): {} has averaged this rank's gradients already, and the other ranks use "
        "them. Call skip() instead of backward(); if every rank skips, call finish_gradients() before it",
        replica_.options.method));
  skip_update();  // gradients that were sent already still count
  end_step(true);
}

void TrainingStep::skip_update() {
  for (std::size_t b = 0; b < replica_.buckets.size(); ++b) replica_.block(b).skipped = true;
}

bool TrainingStep::end_step(bool skipping) {
  const Stopwatch::Running running(replica_.busy);
  const torch::NoGradGuard no_grad;
  gradients_.rethrow_failure();
  if (!skipping) gradients_.rethrow_withheld();
  warn_of_step_beyond_epoch();
  discarded_ = 0;
  begin();
  replica_.optimizer->read_settings();
  check_frozen();
  if (!replica_.options.eager) replica_.check_finite(replica_.notice_changes());
  gradients_.renew_hooks();
  gradients_.collect();
  gradient_norm_.reset();
  squares_.reset();
  if (!skipping && gradients_.raises_nonfinite() && !replica_.gradients_finished &&
      replica_.method->sends_gradients())
    gradients_.check_finite();
  const bool good = measure_gradients(skipping);
  finish();
  return good;
}

// Clips the gradients and detects overflows; false if this rank does not update.
bool TrainingStep::measure_gradients(bool skipping) {
  const TrainerOptions& options = replica_.options;
  const std::size_t buckets = replica_.buckets.size();
  bool good = true;
  if (options.on_nonfinite == "skip" && options.loss_scale == 0 && !skipping) {
    for (std::size_t b = 0; b < buckets && good; ++b) good = replica_.gradient_is_finite(b);
    if (!good) skip_update();
    if (!good && is_power_of_two(++skipped_steps_))
      log(LogLevel::normal,
          fmt::format("rank {} skips its update of training step {}: its gradients are not finite, {} times "
                      "so far",
                      replica_.flock.rank(), replica_.driver->step(), skipped_steps_));
  }
  if (options.clip_norm == 0 && options.loss_scale == 0) return good;
  // With a loss scale no bucket has been sent yet: methods that send gradients send them unscaled.
  if (options.loss_scale != 0 && !gradients_.mark_unscaled())
    for (std::size_t b = 0; b < buckets; ++b)
      replica_.block(b).arithmetic().scale(replica_.block(b).gradient, 1 / progress.loss_scale);
  replica_.driver->gradients();
  if (options.loss_scale == 0 && replica_.on_device()) {
    clip_on_device();
    return good;
  }
  gradient_norm_ = norm_of_gradients();
  if (options.loss_scale != 0 && !std::isfinite(*gradient_norm_)) {
    progress.loss_scale = std::max(progress.loss_scale / 2, 1.0);
    progress.good_steps = 0;
    skip_update();
    return false;
  }
  if (good && !skipping && gradients_.raises_nonfinite() && !std::isfinite(*gradient_norm_))
    for (std::size_t b = 0; b < buckets; ++b)
      if (!replica_.gradient_is_finite(b)) replica_.throw_nonfinite(b, {});
  if (options.loss_scale != 0 && !skipping && ++progress.good_steps == kGoodStepsToDouble) {
    progress.loss_scale *= 2;
    progress.good_steps = 0;
  }
  if (options.clip_norm > 0)
    for (std::size_t b = 0; b < buckets; ++b)
      replica_.block(b).gradient_scale *= std::min(1.0, options.clip_norm / (*gradient_norm_ + 1e-6));
  return good;
}

void TrainingStep::begin_epoch(std::int64_t steps, std::int64_t batches) {
  progress.epoch_left = steps;
  epoch_steps_ = steps;
  epoch_batches_ = batches;
}

void TrainingStep::check_announced() {
  const std::int64_t taken = epoch_steps_ - progress.epoch_left;
  if (epoch_steps_ == kNoEpoch || taken >= epoch_batches_ || std::exchange(warned_short_epoch_, true)) return;
  log(LogLevel::normal,
      fmt::format(
          "rank {} took {} of the {} steps of an epoch that begin_epoch() announced, and skips the rest. "
          "Pass the number of steps that this rank will take; with several batches per step these are fewer "
          "than its batches",
          replica_.flock.rank(), taken, epoch_batches_));
}

std::string TrainingStep::advice_on_loss() const {
  if (epoch_steps_ != kNoEpoch) return {};
  return ". If it has ended because it had fewer batches, call begin_epoch(batches) before and "
         "finish_epoch() after each epoch, on every rank";
}

// Other ranks may have ended, or may be in their next epoch, where this rank would take part in the wrong
// step.
void TrainingStep::warn_of_step_beyond_epoch() {
  if (epoch_steps_ == kNoEpoch || progress.epoch_left > 0 || std::exchange(warned_beyond_epoch_, true))
    return;
  log(LogLevel::normal,
      fmt::format(
          "rank {} takes step {} of an epoch of {} steps: begin_epoch({}) was called here, and no rank "
          "announced more than {}. Pass the number of batches of this rank, and call finish_epoch() "
          "after the last",
          replica_.flock.rank(), epoch_steps_ + 1, epoch_steps_, epoch_batches_, epoch_steps_));
}

void TrainingStep::finish() {
  const torch::NoGradGuard no_grad;
  replica_.driver->finish();
  replica_.publish_step();
  gradients_.end_step();
  finish_was_asked_ = false;
  zeroed_ = false;
  if (progress.epoch_left > 0) --progress.epoch_left;
  // The version tells autograd if a graph is older than the parameters that it was computed with.
  for (const Placed& placed : replica_.parameters) placed.parameter.unsafeGetTensorImpl()->bump_version();
  replica_.note_versions();
  if (replica_.options.eager) replica_.driver->begin();
  sent_ahead_ = replica_.options.eager;
}

kernel::OwnedBuffer TrainingStep::squares_of_gradients() {
  kernel::OwnedBuffer squares(DType::float64, 1, replica_.block(0).x.memory);
  for (std::size_t b = 0; b < replica_.buckets.size(); ++b) {
    const Block& block = replica_.block(b);
    block.arithmetic().add_squares(squares.buffer(), block.gradient, block.gradient_scale);
  }
  return squares;
}

double TrainingStep::norm_of_gradients() {
  return std::sqrt(method::read_number(squares_of_gradients().buffer()));
}

// Scales the gradients where they are, because the host does not wait for their norm.
void TrainingStep::clip_on_device() {
  squares_ = squares_of_gradients();
  for (std::size_t b = 0; b < replica_.buckets.size(); ++b) {
    Block& block = replica_.block(b);
    block.arithmetic().clip(block.gradient, block.gradient_scale, squares_->buffer(),
                            replica_.options.clip_norm);
    block.gradient_scale = 1;
  }
}

// If the last step has not computed the norm, computes it from the gradients, which are still there.
double TrainingStep::gradient_norm() {
  if (squares_) gradient_norm_ = std::sqrt(method::read_number(squares_->buffer()));
  if (gradient_norm_) return *gradient_norm_;
  if (zeroed_ && replica_.driver->step() > 0 && !gradients_.backward_has_run())
    throw InvalidArgument(
        "gradient_norm() after zero_grad(): the last step's gradients are gone; call it before zero_grad(), "
        "or set clip_norm, which keeps the norm");
  for (const Bucket& bucket : replica_.buckets) bucket.fetch_gradient();
  return norm_of_gradients();
}

torch::Tensor TrainingStep::scale(const torch::Tensor& loss) const {
  return replica_.options.loss_scale == 0 ? loss : loss * progress.loss_scale;
}

void TrainingStep::parameters_changed() {
  replica_.take_all_parameters();
  gradients_.note_parameters();
}

bool TrainingStep::between_steps() const {
  return !gradients_.backward_has_run() && (!replica_.driver->begun() || sent_ahead_);
}

}  // namespace starling::train
