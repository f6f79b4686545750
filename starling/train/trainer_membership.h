#pragma once

#include <functional>
#include <vector>

#include "starling/train/replica.h"
#include "starling/train/settings_watch.h"

namespace starling::train {

class TrainingStep;

/// The ranks that train together: members, which have a model and a step, and newcomers, which have none.
struct Cohort {
  static constexpr Step kNew = -1;
  static constexpr Step kLost = -2;

  std::vector<Step> steps;  // by rank; kNew for a newcomer, kLost for a rank that has died before

  bool is_new(Rank rank) const { return steps[static_cast<std::size_t>(rank)] == kNew; }
  bool is_member(Rank rank) const { return steps[static_cast<std::size_t>(rank)] >= 0; }
  /// The first rank that is alive.
  Rank first() const;
  bool has_members() const;
  /// The member that sends a newcomer its model: if possible a neighbor in its next step.
  Rank giver_of(Rank newcomer, const SchedulePtr& schedule) const;
};

/// Checks which ranks train together and whether their settings agree: when the trainer is made, while
/// settings change, and when newcomers are admitted, which get a member's model. (The flock and the driver
/// handle deaths; see Method::view_changed.) Part of a Trainer.
class TrainerMembership {
 public:
  explicit TrainerMembership(Replica& replica) : replica_(replica) {}

  /// Compares what all ranks train; a collective. Throws InvalidArgument on all ranks with the first
  /// difference.
  Cohort agree(const std::string& call);
  /// The same for a new trainer, whose failure policy becomes the flock's: with reweight, ranks may have died
  /// before.
  Cohort begin();
  /// Starts to compare settings in training, again on another flock; on all ranks between the same steps.
  void start_watch();
  SettingsWatch& watch() { return watch_; }

  /// Admits newcomers; see Trainer::admit(). A collective between two steps.
  bool admit(TrainingStep& step, const std::function<SchedulePtr(Rank size)>& schedule_of_flock);
  /// Called on a newcomer: receives the model of a member.
  void receive_model(TrainingStep& step, Rank from);

 private:
  void continue_on(Flock next, TrainingStep& step);

  Replica& replica_;
  SettingsWatch watch_;
  bool has_model_ = false;  // it had a model before the last admission
};

}  // namespace starling::train
