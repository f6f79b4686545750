#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "starling/flock/mailbox.h"
#include "starling/flock/membership.h"
#include "starling/topology/schedule.h"

namespace starling {

class Operation;

/// What happens to operations when a rank dies.
enum class OnLoss {
  raise,     // those that need it throw PeerLost, the others go on
  reweight,  // they complete with the survivors
};

/// What one rank did in one step: its weights after those of missing sources went to itself.
struct StepRecord {
  Step step = 0;            // of the schedule
  std::uint32_t epoch = 0;  // of the view it was done in
  Exchange exchange;
};
using StepObserver = std::function<void(const StepRecord&)>;

/// A cycle of waits that a waiting rank has found; see deadlock.h.
struct Suspicion {
  std::uint64_t since = 0;  // the wait in which it was found
  std::uint64_t cycle = 0;
  std::uint64_t confirmed = 0;
  std::string text;
};

/// What the handles of one flock and its operations share.
class Core {
 public:
  explicit Core(std::shared_ptr<Fabric> given);

  const std::shared_ptr<Fabric> fabric;
  Mailbox mailbox;
  Membership membership;
  std::atomic<std::chrono::nanoseconds> timeout{std::chrono::seconds(300)};
  std::atomic<OnLoss> on_loss{OnLoss::raise};
  std::atomic<bool> many_threads{false};  // more than one has started operations
  std::atomic<bool> told_others{false};   // what this rank waits for

  Rank rank() const { return fabric->rank(); }
  Rank size() const { return fabric->size(); }
  bool reweighting() const { return on_loss.load(std::memory_order_relaxed) == OnLoss::reweight; }

  /// Throws InvalidArgument for a rank that is none.
  void check_peer(Rank peer, std::string_view operation) const;
  /// What every operation does first: raises complaints, notes which thread it comes from.
  void enter();
  /// Operations are started or waited for by this thread.
  void note_thread();

  void set_schedule(SchedulePtr schedule);
  SchedulePtr schedule() const;
  /// The schedule as it holds now: over the live members, once a view has changed it.
  SchedulePtr schedule_now();
  Step step() const;

  /// What this rank does in the next step, which begins now.
  struct Turn {
    Step step = 0;
    std::uint32_t epoch = 0;
    std::uint64_t schedule = 0;  // hash
    Exchange exchange;
  };
  void next_turn(Turn& turn);

  void observe(StepObserver observer);
  void record(const StepRecord& record);
  bool observed() const { return observed_.load(std::memory_order_relaxed); }

  /// Only the one thread that uses the flock looks here.
  Suspicion& suspicion() { return suspicion_; }

  /// Operations of several phases go on while this rank waits for another one.
  void add_in_flight(const std::shared_ptr<Operation>& operation);
  void advance_in_flight(const Operation* except);

 private:
  const SchedulePtr& schedule_in(const View& view);

  mutable std::mutex mutex_;  // of what follows
  SchedulePtr schedule_;
  std::uint64_t schedule_hash_ = 0;
  Step step_ = 0;
  Step started_ = 0;                           // scheduled operations since joining, whatever the schedule
  std::map<std::uint32_t, SchedulePtr> live_;  // by epoch: the schedule over the view's members
  StepObserver observer_;
  std::atomic<bool> observed_{false};

  std::mutex in_flight_mutex_;
  std::vector<std::weak_ptr<Operation>> in_flight_;
  std::atomic<bool> any_in_flight_{false};
  std::atomic<const void*> first_thread_{nullptr};
  Suspicion suspicion_;
};

}  // namespace starling
