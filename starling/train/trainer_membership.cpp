#include "starling/train/trainer_membership.h"

#include <algorithm>
#include <fmt/format.h>

#include "starling/base/error.h"
#include "starling/flock/errors.h"
#include "starling/kernel/transfer.h"
#include "starling/method/registry.h"
#include "starling/record/log.h"
#include "starling/topology/registry.h"
#include "starling/train/settings_agreement.h"
#include "starling/train/training_step.h"
#include "starling/train/transfer_state.h"

namespace starling::train {
namespace {

// Copies the local optimizer's state from one driver's blocks to another's.
void copy_optimizer_state(std::span<Update* const> from, std::span<Update* const> to) {
  for (std::size_t b = 0; b < from.size(); ++b) {
    const auto before = from[b]->state();
    const auto after = to[b]->state();
    for (std::size_t i = 0; i < before.size(); ++i) kernel::transfer(after[i].data, before[i].data);
  }
}

}  // namespace

Rank Cohort::first() const {
  const auto alive = std::find_if(steps.begin(), steps.end(), [](Step step) { return step != kLost; });
  return static_cast<Rank>(alive - steps.begin());
}

bool Cohort::has_members() const {
  return std::any_of(steps.begin(), steps.end(), [](Step step) { return step >= 0; });
}

Rank Cohort::giver_of(Rank newcomer, const SchedulePtr& schedule) const {
  std::vector<Rank> members;
  for (Rank r = 0; r < static_cast<Rank>(steps.size()); ++r)
    if (is_member(r)) members.push_back(r);
  if (schedule) {
    const Step step = steps[static_cast<std::size_t>(members[0])];
    for (const auto& source : schedule->exchange(step, newcomer).sources)
      if (is_member(source.rank)) return source.rank;
  }
  return members[static_cast<std::size_t>(newcomer) % members.size()];
}

Cohort TrainerMembership::agree(const std::string& call) {
  return {agree_on_settings(replica_, has_model_ ? replica_.driver->step() : Cohort::kNew, call)};
}

// Ranks of different policies cannot gather anything together, so the policies are compared while failures
// are still errors. A rank that dies meanwhile is an error on some ranks only. Therefore all that are to
// continue without it agree again, whatever came of the first time.
Cohort TrainerMembership::begin() {
  const std::string& call = replica_.options.maker;
  const bool changes = failure_policy(replica_.options) == OnPeerFailure::reweight &&
                       replica_.flock.on_peer_failure() != OnPeerFailure::reweight;
  if (!changes) return agree(call);
  try {
    const flock::QuietLosses quiet;
    agree(call);
  } catch (const PeerLost&) {
  }
  replica_.adopt_failure_policy();
  return agree(call);
}

void TrainerMembership::start_watch() {
  watch_.start(replica_.flock,
               {replica_.options.name, replica_.options.caller, replica_.method->asynchronous(),
                !replica_.options.per_rank_settings, replica_.method->averages_gradients()});
}

bool TrainerMembership::admit(TrainingStep& step,
                              const std::function<SchedulePtr(Rank size)>& schedule_of_flock) {
  const Stopwatch::Running running(replica_.busy);
  const TrainerOptions& options = replica_.options;
  Flock& flock = replica_.flock;
  replica_.require_own_model("admit()");
  if (options.schedule)
    throw InvalidArgument(
        fmt::format("admit(): the program's own schedule {} is for {} ranks only; give a topology by name",
                    options.schedule->name(), options.schedule->size()));
  if (!step.between_steps())
    throw InvalidArgument("admit() in the middle of a step; call it between step() and zero_grad()");
  Flock next = flock.admit([&](Rank size) {
    SchedulePtr next_of_flock =
        schedule_of_flock ? schedule_of_flock(size) : make_schedule(flock.schedule()->name(), size);
    const Rank per_machine = flock.local_size();
    check_schedule(options, {size, size % per_machine == 0 ? per_machine : 1}, next_of_flock);
    return next_of_flock;
  });
  if (next == flock) return false;
  continue_on(std::move(next), step);
  return true;
}

void TrainerMembership::continue_on(Flock next, TrainingStep& step) {
  const torch::NoGradGuard no_grad;
  std::optional<Driver>& driver = replica_.driver;
  if (!driver->begun()) {
    replica_.notice_changes();
    driver->settle();
  }
  replica_.copy_model_to_x();
  // eager's messages have arrived, and no other rank writes to this rank's memory any more
  driver->restart();
  replica_.waited_before += driver->waited();
  Driver before = std::move(*driver);
  std::vector<Update*> state_before;
  for (std::size_t b = 0; b < before.size(); ++b) state_before.push_back(before[b].local_update.get());
  replica_.flock = std::move(next);

  replica_.method = make_method(replica_.options.method);
  replica_.choose_schedule();
  replica_.make_driver();
  copy_optimizer_state(state_before, replica_.updates());
  driver->set_step(before.step());
  step.forget_sent();
  replica_.publish();
  step.parameters_changed();
  has_model_ = true;
  const Cohort cohort = agree(replica_.options.caller + "admit()");
  start_watch();
  for (Rank r = 0; r < replica_.flock.size(); ++r)
    if (cohort.is_new(r) && cohort.giver_of(r, replica_.schedule) == replica_.flock.rank())
      send_state(replica_, step.progress, r);
}

void TrainerMembership::receive_model(TrainingStep& step, Rank from) {
  receive_state(replica_, step.progress, from);
  has_model_ = true;
  log(LogLevel::info, fmt::format("rank {} starts at step {} with the model of rank {}",
                                  replica_.flock.rank(), replica_.driver->step(), from));
}

}  // namespace starling::train
