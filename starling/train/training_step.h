#pragma once

#include <optional>

#include "starling/train/gradients.h"
#include "starling/train/replica.h"
#include "starling/train/trainer_membership.h"

namespace starling::train {

/// One training step of this rank: zero_grad(), backward (see Gradients), then step() or skip(). Part of a
/// Trainer; called by one thread, except for the parts of Gradients that autograd's threads call.
class TrainingStep {
 public:
  TrainingStep(Replica& replica, TrainerMembership& membership);

  /// The first action of a step: checks what has changed since the last one and starts everything that needs
  /// no gradient, such as the average of the neighbors' models. Called by zero_grad(), backward or step(),
  /// whichever comes first.
  void begin();
  void zero_grad(bool and_begin);
  /// Averages the gradients now, for programs that change the mean before step().
  void finish_gradients();
  /// Updates and averages. Returns false if this rank's update was skipped because of an overflow.
  bool step();
  /// Takes part in the step without an update on this rank.
  void skip();

  /// Takes over parameters that the program has changed and reported.
  void parameters_changed();
  /// Whether the trainer is between step() and zero_grad().
  bool between_steps() const;
  /// Notes that eager's messages for the next step were withdrawn.
  void forget_sent() { sent_ahead_ = false; }
  /// The 2-norm of the last step's gradients before clipping.
  double gradient_norm();
  torch::Tensor scale(const torch::Tensor& loss) const;
  void leave_overflows_to_scaler() { gradients_.leave_overflows_to_scaler(); }
  Gradients& gradients() { return gradients_; }

  /// Starts an epoch in which all ranks take `steps` steps; this rank announced `batches`.
  void begin_epoch(std::int64_t steps, std::int64_t batches);
  /// Advice for the end of a message about a rank lost in a step; may be empty.
  std::string advice_on_loss() const;
  /// Call it before skipping the remaining steps: throws unless this rank has taken as many steps as it
  /// announced batches.
  void check_announced();
  void end_epoch() { epoch_steps_ = kNoEpoch; }

  /// The state of this object that checkpoints and newcomers need.
  struct Progress {
    double loss_scale = 1;
    int good_steps = 0;           // in a row, without an overflow
    std::int64_t epoch_left = 0;  // steps
  };
  Progress progress;

 private:
  bool end_step(bool skipping);
  /// Throws InvalidArgument if a frozen parameter requires a gradient now: it would not be trained.
  void check_frozen() const;
  /// Call it after reading the optimizer's settings: posts and compares them from time to time.
  void compare_settings();
  bool measure_gradients(bool skipping);
  void skip_update();
  kernel::OwnedBuffer squares_of_gradients();
  double norm_of_gradients();
  void clip_on_device();
  void finish();
  /// Warns once, before this rank waits for others in a step beyond the epoch.
  void warn_of_step_beyond_epoch();
  /// Warns once if a program computes gradients but never steps.
  void note_discarded();

  static constexpr std::int64_t kNoEpoch = -1;

  Replica& replica_;
  SettingsWatch& watch_;
  Gradients gradients_;
  std::optional<double> gradient_norm_;  // of the last step, if it was computed
  std::optional<kernel::OwnedBuffer>
      squares_;                     // of the last step's gradients, where a device has clipped them
  std::int64_t skipped_steps_ = 0;  // because of gradients that are not finite
  Step checked_ = -1;               // the last step in which objects that a program may replace were compared
  std::int64_t epoch_steps_ = kNoEpoch;  // of the current epoch
  std::int64_t epoch_batches_ = 0;       // announced by this rank
  bool warned_beyond_epoch_ = false;
  bool warned_short_epoch_ = false;
  int discarded_ = 0;              // gradients in a row that no step has used
  bool sent_ahead_ = false;        // eager has begun the next step
  bool finish_was_asked_ = false;  // finish_gradients() was called since the last step
  bool zeroed_ = true;             // since the last step
};

}  // namespace starling::train
