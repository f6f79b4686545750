#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "starling/flock/membership.h"
#include "starling/flock/rank_runtime.h"
#include "starling/flock/reduce_rounds.h"
#include "starling/flock/window.h"
#include "starling/topology/schedule.h"

namespace starling::flock {

/// The default topology of a flock and of its machines.
inline constexpr const char* kDefaultFlockTopology = "exponential";

/// A schedule and its next step.
struct ScheduleCursor {
  /// Whether schedules with two blocks per rank (CECA) are allowed.
  enum class Blocks { one, any };

  SchedulePtr schedule;  // over this flock's own ranks
  std::uint64_t hash = 0;
  Step step = 0;
  std::map<std::uint32_t, SchedulePtr> in_view;  // by epoch, over the ranks of the whole flock
  std::uint32_t epoch = 0;                       // of the last step
  Step origin = 0;                               // where a two-block schedule last restarted its period
};

/// This rank's exchange in one step of a schedule.
struct StepPlan {
  Step step = 0;
  std::uint32_t epoch = 0;
  std::uint64_t schedule = 0;  // hash
  SchedulePtr over;            // the ranks of the whole flock that are in the view
  Exchange exchange;

  /// The step that both ends of an edge put into messages: 0 if all steps are the same, so that operations
  /// with different names may be started in different orders.
  Step step_in_messages() const { return over && over->period() == 1 && !over->random() ? 0 : step; }
};

/// The state that all handles of one flock and its operations share. Operations use ranks of the whole flock,
/// which are the fabric's; users of a sub-flock use its own ranks, 0 to size - 1, in the order of `members`.
/// Thread-safe.
class FlockState : public std::enable_shared_from_this<FlockState> {
 public:
  /// Creates the whole flock.
  explicit FlockState(std::shared_ptr<Fabric> given);
  /// Creates a sub-flock. `identity` is equal on all its members and differs from those of other flocks.
  FlockState(const FlockState& parent, std::vector<Rank> members, std::uint64_t identity);

  const std::shared_ptr<RankRuntime> runtime;
  const std::shared_ptr<Fabric> fabric;
  Mailbox& mailbox;
  const std::vector<Rank> members;  // ranks of the whole flock
  const Rank rank;                  // this rank's index among them
  const std::uint64_t identity;
  const Rank newcomers;  // the last ranks
  Membership membership;
  std::atomic<OnPeerFailure> on_peer_failure{OnPeerFailure::raise};
  std::atomic<AllreduceAlgorithm> allreduce_algorithm{AllreduceAlgorithm::direct};

  /// Adopts the settings of `before`, the flock that this one replaces, which has another number of ranks.
  void follow(const FlockState& before, const SchedulePtr& schedule);

  Rank self() const { return fabric->rank(); }
  Rank size() const { return static_cast<Rank>(members.size()); }
  bool reweighting() const {
    return on_peer_failure.load(std::memory_order_relaxed) == OnPeerFailure::reweight;
  }

  /// The rank in the whole flock of one of this flock's ranks; throws InvalidArgument if it is out of range.
  Rank global(Rank one, std::string_view operation) const;
  /// The reverse: this flock's rank of a rank of the whole flock.
  Rank own(Rank global_rank) const;
  Topic& topic(const Name& name);

  void set_cursor(ScheduleCursor& cursor, const SchedulePtr& schedule,
                  ScheduleCursor::Blocks blocks = ScheduleCursor::Blocks::one);
  SchedulePtr schedule_of(const ScheduleCursor& cursor) const;
  /// The current schedule: over the live members once a view has changed it.
  SchedulePtr schedule_now();
  Step step_of(const ScheduleCursor& cursor) const;
  void set_step(ScheduleCursor& cursor, Step step);
  /// This rank's exchange in the next step, if no rank dies until then.
  Exchange peek(ScheduleCursor& cursor);

  ScheduleCursor main;      // of neighbor operations
  ScheduleCursor machines;  // of hierarchical operations

  /// Takes the cursor's next step, and starts it.
  void plan_next_step(ScheduleCursor& cursor, StepPlan& plan);

  /// Windows by name, from their creation until they are freed; the caller need not keep the handle. These
  /// functions throw InvalidArgument that lists the existing names.
  void check_new_window(const std::string& name) const;
  bool has_window(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return windows_.contains(name);
  }
  void add_window(const std::string& name, std::shared_ptr<Window::State> window);
  std::shared_ptr<Window::State> window(std::string_view name) const;
  void forget_window(const std::string& name);

  /// How many flocks with exactly these members this rank has made before.
  std::uint64_t count_flocks(const std::vector<Rank>& of);

  std::string refusal;  // why newcomers were not admitted the last time
  bool schedule_is_set() const { return schedule_is_set_; }
  void note_schedule_is_set(bool set) { schedule_is_set_ = set; }

  void observe(StepObserver observer);
  void record(const StepRecord& record);
  bool observed() const { return observed_.load(std::memory_order_relaxed); }

 private:
  const SchedulePtr& schedule_in(ScheduleCursor& cursor, const View& view);
  std::string window_names() const;

  mutable std::mutex mutex_;  // guards the cursors and the following members
  Step started_ = 0;          // scheduled operations since joining, whatever the schedule
  std::map<std::vector<Rank>, std::uint64_t> flocks_;
  std::map<std::string, std::shared_ptr<Window::State>, std::less<>> windows_;
  StepObserver observer_;
  std::atomic<bool> observed_{false};
  std::atomic<bool> schedule_is_set_{false};  // the program has set `main`
};

}  // namespace starling::flock
