#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "starling/base/stopwatch.h"
#include "starling/flock/flock.h"
#include "starling/method/drive.h"
#include "starling/train/bucket.h"
#include "starling/train/local_optimizer.h"
#include "starling/train/module_tensors.h"
#include "starling/train/options.h"

namespace starling::train {

/// This rank's copy of the model with everything that changes it: parameters in flat buckets, the local
/// optimizer, and the driver that runs the method on them. Owned by a Trainer and shared by its four parts:
/// TrainingStep, TrainerMembership, TrainerCheckpoint and Averages.
struct Replica {
  Replica(Flock flock, ModuleTensors module, std::unique_ptr<LocalOptimizer> optimizer,
          TrainerOptions options);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  /// Makes the blocks and their channels on the current flock and schedule.
  void make_driver();
  Block& block(std::size_t bucket) { return (*driver)[bucket]; }
  /// The local optimizer's state, by bucket.
  std::vector<Update*> updates();
  /// The local optimizer's settings, and its state unless the updates keep it, as text; and back. Throws
  /// InvalidArgument if it cannot be saved, Error if the text is of another optimizer.
  std::string save_optimizer();
  void restore_optimizer(const std::string& text);
  /// Seconds spent waiting for other ranks so far, on former flocks, too.
  double waited() const { return waited_before + driver->waited(); }

  // Changes of the parameters that were not made by the trainer.

  /// Takes in parameters that were changed or loaded since the last step; torch counts its writes in
  /// versions.
  void notice_changes();
  /// Like notice_changes(), for all parameters, whether torch has counted a write or not.
  void take_all_parameters();
  /// Stores the parameters' versions as the trainer's own writes.
  void note_versions();
  /// Throws InvalidArgument if a parameter has changed that eager has sent already.
  void check_sent_parameters();
  /// Loading a module gives a parameter other memory: copies it back into its bucket.
  void rebind(std::size_t parameter);

  /// Copies the method's model into x, where they differ (push-sum keeps a scaled x).
  void copy_model_to_x();
  /// Copies x to the device, where the parameters are there.
  void publish();
  /// Throws InvalidArgument while the parameters are the flock's average; `what` says what was asked for.
  void require_own_model(const std::string& what) const;

  bool gradient_is_finite(std::size_t bucket) const;
  /// Throws NonFinite with the parameter's name; `result` is the updated block, if there is one.
  [[noreturn]] void throw_nonfinite(std::size_t bucket, ConstBuffer result);

  Flock flock;
  ModuleTensors module;
  std::unique_ptr<LocalOptimizer> optimizer;
  TrainerOptions options;
  MethodPtr method;
  SchedulePtr schedule;  // of the method; null if it needs none
  std::vector<Placed> parameters;
  ModuleTensors::Named frozen;  // parameters of the optimizer that required no gradient at the start
  std::vector<Bucket> buckets;
  std::optional<Driver> driver;  // none before make_driver()

  bool gradients_finished = false;  // the buckets' gradients are what the method makes of them (a mean)
  bool averaged = false;            // the parameters are the flock's average, see Averages
  bool lost_hooks = false;          // parameters were rebound: autograd has new accumulators for them
  double waited_before = 0;         // seconds, on former flocks
  Stopwatch busy;                   // time in the trainer, waiting included

 private:
  std::size_t bucket_bytes() const;
  bool torch_keeps_state();
  void take_bucket(std::size_t bucket);

  std::vector<std::int64_t> versions_;  // of the parameters after the last step
};

/// The schedule that a method follows on this flock; null if it needs none. Throws InvalidArgument if the
/// method cannot run on it.
SchedulePtr find_schedule(const Flock& flock, const Method& method, const TrainerOptions& options);
/// Throws InvalidArgument if the method could not run on a flock of this setting, whose own schedule would be
/// `of_flock`.
void check_schedule(const TrainerOptions& options, const MethodSetting& setting, const SchedulePtr& of_flock);

}  // namespace starling::train
