#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "starling/flock/hub.h"
#include "starling/flock/membership.h"
#include "starling/flock/reduce_rounds.h"
#include "starling/flock/window.h"
#include "starling/topology/schedule.h"

namespace starling {

/// What happens to operations when a rank dies.
enum class OnPeerFailure {
  raise,     // those that need it throw PeerLost, the others go on
  reweight,  // they complete with the survivors
};

using OnLoss [[deprecated("its name is OnPeerFailure")]] = OnPeerFailure;

/// What one rank did in one step: its weights after those of missing sources went to itself.
struct StepRecord {
  Step step = 0;            // of the schedule
  std::uint32_t epoch = 0;  // of the view it was done in
  Exchange exchange;        // ranks of the whole flock
};
using StepObserver = std::function<void(const StepRecord&)>;

/// A schedule on its way: which step comes next.
struct Course {
  /// Whether a schedule of two blocks per rank (CECA) may be taken.
  enum class Blocks { one, any };

  SchedulePtr schedule;  // over the flock's own ranks
  std::uint64_t hash = 0;
  Step step = 0;
  std::map<std::uint32_t, SchedulePtr> in_view;  // by epoch, over the ranks of the whole flock
  std::uint32_t epoch = 0;                       // of the last step
  Step origin = 0;                               // where a two-block schedule began its period anew
};

/// What the handles of one flock and its operations share. Operations speak of ranks of the whole flock,
/// which are the fabric's; users of a sub-flock of its own ranks, 0 to size - 1, in the order of `members`.
class Core {
 public:
  /// The whole flock.
  explicit Core(std::shared_ptr<Fabric> given);
  /// A part of it. `identity` is the same on all its members and tells it from other flocks.
  Core(const Core& parent, std::vector<Rank> members, std::uint64_t identity);

  const std::shared_ptr<Hub> hub;
  const std::shared_ptr<Fabric> fabric;
  Mailbox& mailbox;
  const std::vector<Rank> members;  // ranks of the whole flock
  const Rank rank;                  // this one's place among them
  const std::uint64_t identity;
  const Rank newcomers;  // the last ones
  Membership membership;
  std::atomic<OnPeerFailure> on_peer_failure{OnPeerFailure::raise};
  std::atomic<AllreduceWay> allreduce_way{AllreduceWay::direct};

  /// The settings of the flock whose place this one takes, of another number of ranks.
  void follow(const Core& before, const SchedulePtr& schedule);

  Rank self() const { return fabric->rank(); }
  Rank size() const { return static_cast<Rank>(members.size()); }
  bool reweighting() const {
    return on_peer_failure.load(std::memory_order_relaxed) == OnPeerFailure::reweight;
  }

  /// The rank in the whole flock of one of this flock's ranks; throws InvalidArgument for one that is none.
  Rank global(Rank one, std::string_view operation) const;
  /// The other way round.
  Rank own(Rank global_rank) const;
  Topic& topic(const Name& name);

  void set_course(Course& course, const SchedulePtr& schedule, Course::Blocks blocks = Course::Blocks::one);
  SchedulePtr schedule_of(const Course& course) const;
  /// The schedule as it holds now: over the live members, once a view has changed it.
  SchedulePtr schedule_now();
  Step step_of(const Course& course) const;
  void set_step(Course& course, Step step);
  /// What this rank would do in the next step if nobody died.
  Exchange peek(Course& course);

  Course main;      // of neighbour operations
  Course machines;  // of hierarchical ones

  /// What this rank does in the next step of a course, which begins now.
  struct Turn {
    Step step = 0;
    std::uint32_t epoch = 0;
    std::uint64_t schedule = 0;  // hash
    SchedulePtr over;            // the ranks of the whole flock that are in the view
    Exchange exchange;

    /// What both ends of an edge must name: nothing where all steps are the same, so that operations under
    /// different names may be started in different orders.
    Step step_in_messages() const { return over && over->period() == 1 && !over->random() ? 0 : step; }
  };
  void next_turn(Course& course, Turn& turn);

  /// Windows by name, from their making until they are freed: who made one need not keep the handle. These
  /// throw InvalidArgument, which lists the names there are.
  void check_new_window(const std::string& name) const;
  bool has_window(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return windows_.contains(name);
  }
  void add_window(const std::string& name, std::shared_ptr<Window::State> window);
  std::shared_ptr<Window::State> window(std::string_view name) const;
  void forget_window(const std::string& name);

  /// How many flocks of exactly these members this rank has made before.
  std::uint64_t count_flocks(const std::vector<Rank>& of);

  std::string refusal;  // the last reason for which newcomers were not let in
  bool schedule_is_set() const { return schedule_is_set_; }
  void note_schedule_is_set(bool set) { schedule_is_set_ = set; }

  void observe(StepObserver observer);
  void record(const StepRecord& record);
  bool observed() const { return observed_.load(std::memory_order_relaxed); }

 private:
  const SchedulePtr& schedule_in(Course& course, const View& view);
  std::string window_names() const;

  mutable std::mutex mutex_;  // of the courses and of what follows
  Step started_ = 0;          // scheduled operations since joining, whatever the schedule
  std::map<std::vector<Rank>, std::uint64_t> flocks_;
  std::map<std::string, std::shared_ptr<Window::State>, std::less<>> windows_;
  StepObserver observer_;
  std::atomic<bool> observed_{false};
  std::atomic<bool> schedule_is_set_{false};  // `main` is the program's, not the default
};

}  // namespace starling
