#pragma once

#include <chrono>
#include <exception>
#include <mutex>
#include <optional>

#include "starling/method/drive.h"
#include "starling/train/gradient_hooks.h"
#include "starling/train/saved_model.h"
#include "starling/train/settings_watch.h"
#include "starling/train/torch_update.h"
#include "starling/train/trainer.h"

namespace starling {

/// Sums up the time in calls, the outermost of those within each other.
class Stopwatch {
 public:
  class Running {
   public:
    explicit Running(Stopwatch& watch) : watch_(watch) {
      if (watch_.depth_++ == 0) watch_.since_ = Clock::now();
    }
    ~Running() {
      if (--watch_.depth_ == 0)
        watch_.seconds_ += std::chrono::duration<double>(Clock::now() - watch_.since_).count();
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    Stopwatch& watch_;
  };
  double seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point since_;
  double seconds_ = 0;
  int depth_ = 0;
};

/// Who trains together: those that have a model from before, at a step, and those that come without.
struct Company {
  static constexpr Step kNew = -1;

  std::vector<Step> steps;  // by rank; kNew: it has just come

  bool somebody_goes_on() const;
  /// From whom a newcomer gets the model: a neighbour of its next step where that has one.
  Rank giver_of(Rank newcomer, const SchedulePtr& schedule) const;
};

/// What a Trainer is made of.
struct Trainer::State {
  State(Flock flock, ModuleTensors module, std::unique_ptr<LocalOptimizer> optimizer, TrainerOptions options);

  // trainer_step.cpp
  void zero_grad(bool and_begin);
  bool step();
  void skip();
  bool end_step(bool skipping);
  bool measure_gradients(bool skipping);
  double norm_of_gradients();
  double last_gradient_norm();
  void finish_step();

  // trainer_gradients.cpp: from backward to where the update finds them
  void accumulated(std::size_t parameter, const torch::Tensor& part);
  void begin_backward();
  void end_backward();
  void complete(std::size_t bucket);
  void forget_arrivals();
  void adopt_gradients(std::size_t bucket);
  void take_edited(std::size_t bucket);
  void note_used(std::size_t bucket, bool with_elements);
  void note_computed(std::size_t parameter);
  void check_unedited();
  void check_stepped(std::size_t parameter) const;
  void finish_gradients();
  bool is_finite(std::size_t bucket) const;
  void check_finite();
  [[noreturn]] void raise_nonfinite(std::size_t bucket, ConstBlock result);
  void rethrow_failure();
  bool backward_has_run() const;
  bool eager_or_early() const { return options.eager || sends_early; }
  bool raises_nonfinite() const {
    return options.on_nonfinite == "raise" && options.loss_scale == 0 && !has_scaler;
  }

  // trainer_state.cpp
  void begin();
  std::vector<Update*> updates();
  std::size_t bucket_bytes() const;
  void parameters_changed();
  void notice_changes();
  void check_unchanged();
  void check_frozen() const;
  void bring_home(std::size_t parameter);
  void renew_hooks();

  DType message_type() const;
  SchedulePtr find_schedule(const Method& method) const;
  /// Throws InvalidArgument where the method cannot go on in a flock like this.
  void check_schedule(const MethodSetting& setting, const SchedulePtr& of_flock) const;
  void begin_watching();
  void watch_settings();
  void make_driver(const MethodPtr& method, const SchedulePtr& schedule, DType message);

  // welcome.cpp
  bool welcome(const std::function<SchedulePtr(Rank size)>& schedule_of_flock);
  void go_on_with(Flock next);
  void give_model(Rank to);
  void take_model(Rank from);
  std::vector<StatePlace> luggage(SavedModel& model);

  // saved_trainer.cpp
  void save(SavedParts& parts);
  void restore(const CheckpointFile& file);
  void restore_settings(const CheckpointFile& file);
  void restore_mean(std::span<const CheckpointFile> files);
  bool optimizer_remembers();

  // agreement.cpp
  Description describe(const SchedulePtr& schedule) const;
  Description describe_changing() const;
  /// Throws InvalidArgument on all ranks, naming the first difference, where they do not train alike.
  Company agree(const SchedulePtr& schedule);
  void name_difference(const Description& fixed, const Description& changing);

  // averages.cpp
  void broadcast_parameters(Rank root);
  void broadcast_optimizer_state(Rank root);
  double consensus_distance();
  void average();
  void revert();
  void average_buffers();
  std::vector<torch::Tensor> floating_buffers() const;

  Flock flock;
  ModuleTensors module;
  std::unique_ptr<LocalOptimizer> local;
  TrainerOptions options;
  std::vector<Placed> parameters;
  std::vector<Bucket> buckets;
  std::optional<Driver> driver;
  SettingsWatch watch;

  /// What a tensor was: torch counts in versions how often it was written to, but not what is written
  /// through data(), as its C++ optimizers do. That, some elements tell.
  struct Trace {
    std::int64_t version = 0;
    std::optional<std::uint64_t> elements;

    static Trace of(const torch::Tensor& tensor, bool with_elements);
    bool fits(const torch::Tensor& tensor) const;
  };
  /// How a parameter's gradient arrives.
  struct Arrival {
    int count = 0;              // of backward()s since the last step
    std::int64_t zero = 0;      // the gradient's version when it was zero, or kWritten
    std::optional<Trace> used;  // the gradient when it was sent or backward ended
    Trace computed;             // the parameter when backward computed the gradient
  };
  static constexpr std::int64_t kWritten = -1;

  std::mutex mutex;                     // backward may run on several threads
  std::vector<Arrival> arrivals;        // by parameter
  std::vector<std::size_t> incomplete;  // by bucket: parameters without their gradient
  std::vector<bool> completed;          // by bucket: its gradients are there, and used as the method wants
  std::vector<std::int64_t> versions;   // of the parameters after the last step
  ModuleTensors::Named frozen;          // parameters of the optimizer, when the trainer was made
  bool sends_early = false;             // gradients travel during backward
  bool has_scaler = false;              // who finds overflows
  bool hooks_lost = false;              // parameters were loaded
  bool sent_ahead = false;              // by eager, since the last step
  bool gradients_finished = false;      // ahead of step(): what is in .grad is what the update takes
  bool finish_was_asked = false;        // by the program, since the last step
  bool unscaled = false;                // since zero_grad()
  bool zeroed = true;                   // since the last step
  std::weak_ptr<int> backward;          // the one under way, whose end will be told
  std::exception_ptr failure;           // of backward, for the next call to throw
  std::exception_ptr withheld;          // a gradient of this step was not sent, since it is not finite
  std::int64_t skipped_steps = 0;       // because of gradients that are not finite
  bool goes_on = false;                 // from before newcomers came
  double waited_before = 0;             // seconds, in flocks before this one
  double loss_scale = 0;
  int good_steps = 0;
  std::optional<double> gradient_norm;  // of the last step, where it was measured
  Stopwatch inside;                     // time in here, waiting included
  std::int64_t epoch_left = 0;          // steps

  std::vector<torch::Tensor> own_models;  // while averaged
  std::vector<torch::Tensor> own_buffers;
  bool averaged = false;

  std::unique_ptr<GradientHooks> hooks;  // last: they call into this
};

}  // namespace starling
