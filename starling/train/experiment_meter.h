#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "starling/train/experiment.h"
#include "starling/train/trainer.h"

namespace starling::train {

/// Measures a run for its reports: loss, speed, waiting, bytes, deaths and divergence, summed over the ranks.
class ExperimentMeter {
 public:
  /// Bytes sent before the construction do not count.
  ExperimentMeter(Trainer& trainer, const Reporter& report);

  /// Bytes sent while an object of this class exists do not count as training.
  class Uncounted {
   public:
    explicit Uncounted(ExperimentMeter& meter) : meter_(meter), sent_(meter.trainer_.flock().bytes_sent()) {}
    ~Uncounted() { meter_.uncounted_ += meter_.trainer_.flock().bytes_sent() - sent_; }
    Uncounted(const Uncounted&) = delete;
    Uncounted& operator=(const Uncounted&) = delete;

   private:
    ExperimentMeter& meter_;
    std::uint64_t sent_;
  };

  /// Continues from the totals of a run before its resume; this rank had sent `bytes`.
  void resume(const RunReport& totals, std::uint64_t bytes);
  void start_clock() { since_ = Clock::now(); }
  /// Adds a batch of this rank. A loss on a device is read later, when it is needed.
  void add_batch(const torch::Tensor& loss, std::size_t samples);
  /// Counts a step that this rank took with data.
  void add_step() { ++steps_; }
  /// False if a loss that has been read was not finite.
  bool own_loss_is_finite() const { return !bad_step_; }

  /// Sums up everything since the last call into totals(); a collective, whose own bytes do not count.
  void sum_up();
  /// Finds ranks that have died and reports them once; a collective. Returns all dead ranks.
  std::vector<Rank> find_dead();
  /// Whether a rank's loss was not finite; a collective.
  bool agree_on_divergence();

  RunReport& totals() { return totals_; }
  /// Seconds until now, also in the middle of an epoch.
  double seconds_until_now() const;
  const std::optional<RunDivergence>& divergence() const { return divergence_; }
  /// The bytes to save in this rank's checkpoint: its own and, on the first survivor, those of dead ranks.
  std::uint64_t bytes_to_save() const;

 private:
  using Clock = std::chrono::steady_clock;

  void add_loss(double loss, Step step);
  void read_losses();
  std::uint64_t own_bytes() const;
  void note_dead(const std::vector<Rank>& dead);
  double bad_step_and_rank() const;
  void note_divergence(double earliest);

  Trainer& trainer_;
  const Reporter& report_;
  RunReport totals_;
  Clock::time_point since_{};
  double waited_ = 0, combined_ = 0;            // the trainer's times at the last sum_up()
  double loss_ = 0, losses_ = 0, samples_ = 0;  // since the last sum_up()
  std::vector<torch::Tensor> unread_;           // losses on a device
  std::vector<Step> unread_steps_;              // of unread_
  int steps_ = 0;                               // with data, since the last sum_up()
  std::vector<Rank> dead_;
  std::vector<std::uint64_t> bytes_by_rank_;  // as last reported
  std::uint64_t uncounted_ = 0;               // bytes of this rank that are not training
  std::uint64_t before_ = 0;                  // bytes of this rank before the run was resumed
  std::optional<Step> bad_step_;              // the first in which this rank's loss was not finite
  std::optional<RunDivergence> divergence_;
};

}  // namespace starling::train
