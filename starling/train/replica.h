#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "starling/base/stopwatch.h"
#include "starling/flock/flock.h"
#include "starling/kernel/device.h"
#include "starling/method/drive.h"
#include "starling/train/bucket.h"
#include "starling/train/local_optimizer.h"
#include "starling/train/module_tensors.h"
#include "starling/train/options.h"

namespace starling::train {

/// This rank's copy of the model and everything that changes it: parameters in flat buckets, the local
/// optimizer, and the driver that runs the method on them. Owned by a Trainer and shared by its four parts:
/// TrainingStep, TrainerMembership, TrainerCheckpoint and Averages.
struct Replica {
  Replica(Flock flock, ModuleTensors module, std::unique_ptr<LocalOptimizer> optimizer,
          TrainerOptions options);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  /// Finds the method's schedule on the current flock.
  void choose_schedule();
  /// Sets the flock's OnPeerFailure; call it after the ranks have agreed on the options.
  void adopt_failure_policy();
  /// Makes the blocks and their channels for the current flock and schedule.
  void make_driver();
  Block& block(std::size_t bucket) { return (*driver)[bucket]; }
  /// The common beginning of the names of some of this trainer's operations, `name()/purpose`. Errors about
  /// these operations name the user's `call` instead.
  std::string operations_of(const std::string& purpose, const std::string& call);
  /// The local optimizer's state, by bucket.
  std::vector<Update*> updates();
  /// The local optimizer's settings, and its state unless the updates keep it, as text; and the reverse.
  /// Throws InvalidArgument if it cannot be saved, Error if the text is another optimizer's.
  std::string save_optimizer();
  void restore_optimizer(const std::string& text);
  /// Seconds spent waiting for other ranks so far, including previous flocks.
  double waited() const { return waited_before + driver->waited(); }

  // Changes of the parameters that the trainer did not make.

  /// Takes over parameters that were changed or loaded since the last step, according to torch's version
  /// counts. Returns their buckets.
  std::vector<std::size_t> notice_changes();
  /// Throws NonFinite if a parameter of these buckets is not finite, before it is sent, unless the options
  /// ignore this. The results of the trainer's own steps are checked there.
  void check_finite(const std::vector<std::size_t>& changed);
  /// Like notice_changes(), but for all parameters, whatever torch's version counts say.
  void take_all_parameters();
  /// Records the parameters' versions as the trainer's own writes.
  void note_versions();
  /// Throws InvalidArgument if a parameter has changed after eager has sent it.
  void check_sent_parameters();
  /// Moves a parameter back into its bucket after loading a module has given it other memory.
  void rebind(std::size_t parameter);

  /// Throws InvalidArgument if the module's parameters differ from those at the start, for example because a
  /// layer was replaced.
  void check_module() const;
  /// Logs once that the flock's own schedule was set after the trainer has read it.
  void notice_schedule();
  /// The 2-norm of the parameters.
  double norm_of_model();

  /// Copies the method's model to x if they differ (push-sum keeps a scaled x).
  void copy_model_to_x();
  /// Copies x to the parameters where they are not x.
  void publish();
  /// The same after a step, which may have written the parameters already.
  void publish_step();
  /// Throws InvalidArgument while the parameters are the flock's average; `what` is the caller's operation.
  void require_own_model(const std::string& what) const;

  /// Whether the blocks are on a device, where the host does not wait for results.
  bool on_device() const { return !buckets.empty() && !buckets[0].x_block().on_host(); }
  bool gradient_is_finite(std::size_t bucket) const;
  /// Throws NonFinite with the parameter's name; `result` is the updated block, if there is one.
  [[noreturn]] void throw_nonfinite(std::size_t bucket, ConstBuffer result);

  /// The context for this thread's work on the blocks, to be passed to a kernel::DeviceScope.
  kernel::DeviceContext device_context() const;

  Flock flock;
  ModuleTensors module;
  std::unique_ptr<LocalOptimizer> optimizer;
  TrainerOptions options;
  MethodPtr method;
  SchedulePtr schedule;  // the method's schedule; null if it needs none
  std::vector<Placed> parameters;
  ModuleTensors::Named frozen;  // parameters of the optimizer that did not require gradients at the start
  std::vector<Bucket> buckets;
  std::optional<Driver> driver;  // empty before make_driver()

  // the buckets contain the gradients that the method has processed (averaged)
  bool gradients_finished = false;
  bool averaged = false;     // the parameters are the flock's average, see Averages
  bool lost_hooks = false;   // parameters were rebound: autograd has new accumulators for them
  double waited_before = 0;  // seconds, on former flocks
  Stopwatch busy;            // time in the trainer, including waits

 private:
  std::size_t bucket_bytes() const;
  std::string why_through_host() const;
  void check_master_weights() const;
  bool torch_keeps_state();
  void take_bucket(std::size_t bucket);

  bool noticed_order_ = false;          // a parameter's order in memory has changed
  std::vector<std::int64_t> versions_;  // of the parameters after the last step
  ModuleTensors::Named at_start_;       // the module's parameters
  SchedulePtr flocks_schedule_;         // the flock's own when the method's was chosen; null: not used
};

/// The schedule that a method follows on this flock; null if it needs none. Throws InvalidArgument if the
/// method cannot run on it.
SchedulePtr find_schedule(const Flock& flock, const Method& method, const TrainerOptions& options);
/// Throws InvalidArgument if the method cannot run on a flock with this setting, whose own schedule is
/// `of_flock`.
void check_schedule(const TrainerOptions& options, const MethodSetting& setting, const SchedulePtr& of_flock);

}  // namespace starling::train
