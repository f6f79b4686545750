#pragma once

#include <chrono>
#include <mutex>
#include <optional>

#include "starling/method/drive.h"
#include "starling/train/gradient_hooks.h"
#include "starling/train/saved_model.h"
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

  // trainer.cpp
  void zero_grad(bool and_begin);
  void begin();
  bool step();
  void skip();
  bool end_step(bool skipping);
  void accumulated(std::size_t parameter, const torch::Tensor& part);
  void adopt_gradients(std::size_t bucket);
  bool holds_back(std::size_t bucket) const;
  void finish_gradients();
  bool measure_gradients(bool skipping);
  void finish_step();
  std::vector<Update*> updates();
  std::size_t bucket_bytes() const;
  void tell_end_of_backward();
  void parameters_changed();
  void notice_changes();
  void check_unchanged();
  void bring_home(std::size_t parameter);
  void renew_hooks();

  // trainer_state.cpp
  DType message_type() const;
  std::string settings(const SchedulePtr& schedule) const;
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

  // averages.cpp
  /// Throws InvalidArgument on all ranks where they have different settings.
  Company agree_on(const std::string& settings);
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

  std::mutex mutex;                     // backward may run on several threads
  std::vector<int> accumulations;       // by parameter: backward()s since the last step
  std::vector<std::size_t> incomplete;  // by bucket: parameters without their gradient
  std::vector<std::int64_t> versions;   // of the parameters after the last step
  bool hooks_lost = false;              // parameters were loaded
  bool sent_ahead = false;              // by eager, since the last step
  bool gradients_finished = false;      // ahead of step()
  std::weak_ptr<int> backward;          // the one under way, whose end will be told
  bool goes_on = false;                 // from before newcomers came
  double waited_before = 0;             // seconds, in flocks before this one
  double loss_scale = 0;
  int good_steps = 0;
  double gradient_norm = 0;
  Stopwatch inside;             // time in here, waiting included
  std::int64_t epoch_left = 0;  // steps

  std::vector<torch::Tensor> own_models;  // while averaged
  std::vector<torch::Tensor> own_buffers;
  bool averaged = false;

  std::unique_ptr<GradientHooks> hooks;  // last: they call into this
};

}  // namespace starling
