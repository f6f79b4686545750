#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "starling/train/gradient_hooks.h"
#include "starling/train/replica.h"
#include "starling/train/settings_watch.h"

namespace starling::train {

/// Collects the gradients of one step, from backward to the flat memory that the update reads. The content of
/// .grad at step() counts. If the method averages gradients, it has done so when backward() returns, like
/// DDP, so .grad is then the mean. Owned by a TrainingStep; autograd's threads call into it through hooks.
class Gradients {
 public:
  /// `begin_step` starts the step unless it has started.
  Gradients(Replica& replica, SettingsWatch& watch, std::function<void()> begin_step);

  /// Hooks into the parameters' gradient accumulators; call it again after parameters were rebound.
  void renew_hooks();

  /// Whether backward has computed a gradient since the last step or zero().
  bool backward_has_run() const;
  /// Throws the error that occurred inside backward and could not be thrown there.
  void rethrow_failure();
  /// Like rethrow_failure(), if a gradient was not sent because it is not finite.
  void rethrow_withheld() const;
  /// Throws InvalidArgument if a parameter was changed after backward, because the program called the
  /// optimizer's own step().
  void check_stepped() const;

  /// Sets all gradients to zero.
  void zero();
  /// Copies .grad to the flat memory where necessary, for the update.
  void collect();
  /// Averages the gradients if the method does; .grad is then the mean.
  void finish();
  /// Throws NonFinite if a gradient that has not been sent yet is not finite.
  void check_finite();
  /// Ends the step. Gradients keep their values; a second step() without zero() would use them again.
  void end_step();
  /// Notes that the trainer itself has changed the parameters.
  void note_parameters();

  /// Whether gradients are averaged during backward.
  bool sends_early() const { return sends_early_; }
  bool raises_nonfinite() const;
  void leave_overflows_to_scaler() { has_scaler_ = true; }
  /// Marks the gradients as unscaled and returns whether they already were; zero() resets the mark.
  bool mark_unscaled() { return std::exchange(unscaled_, true); }

 private:
  /// The state of a tensor at one moment. torch counts writes in versions, except those through data(), which
  /// its C++ optimizers use; a sample of the elements reveals these.
  struct Trace {
    std::int64_t version = 0;
    std::optional<std::uint64_t> elements;

    static Trace of(const torch::Tensor& tensor, bool with_elements);
    bool fits(const torch::Tensor& tensor) const;
  };
  struct Arrival {
    int count = 0;              // backward passes since the last step
    std::int64_t zero = 0;      // the gradient's version when it was set to zero, or kWritten
    std::optional<Trace> used;  // the gradient when it was sent, or when backward ended
    Trace computed;             // the parameter when backward computed the gradient
  };
  static constexpr std::int64_t kWritten = -1;

  void accumulated(std::size_t parameter, const torch::Tensor& part);
  void begin_backward();
  void complete(std::size_t bucket);
  void end_backward();
  void gather(std::size_t bucket);
  void adopt(std::size_t bucket);
  void adopt_finished(std::size_t bucket);
  void forget();
  void note_used(std::size_t bucket, bool with_elements);
  void note_computed(std::size_t parameter);
  void check_unedited() const;
  void check_stepped(std::size_t parameter) const;
  bool eager_or_early() const { return replica_.options.eager || sends_early_; }

  Replica& replica_;
  SettingsWatch& watch_;
  std::function<void()> begin_step_;

  std::mutex mutex_;                     // backward may run on several threads
  std::vector<Arrival> arrivals_;        // by parameter
  std::vector<std::size_t> incomplete_;  // by bucket: parameters whose gradient is missing
  std::vector<bool> completed_;          // by bucket: all gradients are complete and the method has them
  /// By bucket on a device: parameters whose first gradient since zero() is missing. After the last one,
  /// backward gathers the bucket.
  std::vector<std::size_t> ungathered_;
  bool sends_early_ = false;
  bool has_scaler_ = false;               // torch's GradScaler checks for overflows
  bool unscaled_ = false;                 // since zero()
  std::weak_ptr<int> backward_;           // the current pass, whose end torch will report
  std::exception_ptr failure_;            // of backward, for the next call to throw
  std::exception_ptr withheld_;           // a gradient of this step was not sent because it is not finite
  std::unique_ptr<GradientHooks> hooks_;  // last: they call into this
};

}  // namespace starling::train
