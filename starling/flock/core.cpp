#include "starling/flock/core.h"

#include <cstdio>
#include <fmt/format.h>

#include "starling/flock/operation.h"
#include "starling/topology/registry.h"

namespace starling {
namespace {

std::string list_of(const std::vector<Rank>& ranks) {
  return fmt::format("[{}]", fmt::join(ranks, ","));
}

}  // namespace

Core::Core(std::shared_ptr<Fabric> given) : fabric(std::move(given)), mailbox(fabric), membership(*fabric) {}

void Core::check_peer(Rank peer, std::string_view operation) const {
  if (peer < 0 || peer >= size())
    throw InvalidArgument(
        fmt::format("{}: rank {} is not one of the {} ranks 0..{}", operation, peer, size(), size() - 1));
}

void Core::note_thread() {
  thread_local const char here = 0;
  const void* first = nullptr;
  if (!first_thread_.compare_exchange_strong(first, &here, std::memory_order_relaxed) && first != &here)
    many_threads.store(true, std::memory_order_relaxed);
}

void Core::enter() {
  note_thread();
  mailbox.drain_all();
  mailbox.raise_complaints();
}

void Core::set_schedule(SchedulePtr schedule) {
  if (schedule->size() != size())
    throw InvalidArgument(
        fmt::format("{} is for {} ranks, this flock has {}", schedule->name(), schedule->size(), size()));
  if (schedule->mixing() == Mixing::two_block)
    throw InvalidArgument(fmt::format(
        "{} mixes two blocks per rank, which neighbor_allreduce cannot; base(k=1) is exact with one",
        schedule->name()));
  const std::lock_guard lock(mutex_);
  schedule_hash_ = hash_name(schedule->name());
  schedule_ = std::move(schedule);
  step_ = 0;
  live_.clear();
}

SchedulePtr Core::schedule() const {
  const std::lock_guard lock(mutex_);
  return schedule_;
}

SchedulePtr Core::schedule_now() {
  const auto view = membership.newest();
  const std::lock_guard lock(mutex_);
  return view->first_step >= 0 && view->first_step <= started_ ? schedule_in(*view) : schedule_;
}

Step Core::step() const {
  const std::lock_guard lock(mutex_);
  return step_;
}

// A schedule that cannot be had for so few ranks stays as it was: what is missing goes to the receiver itself
// in every step.
const SchedulePtr& Core::schedule_in(const View& view) {
  if (view.epoch == 0) return schedule_;
  SchedulePtr& found = live_[view.epoch];
  if (found) return found;
  const std::string spec = fmt::format("live({},members={})", schedule_->name(), list_of(view.members));
  try {
    found = make_schedule(spec, size());
  } catch (const InvalidArgument& error) {
    fmt::print(stderr,
               "starling: rank {} keeps {} with gaps, since over the {} live ranks it is impossible: {}\n",
               rank(), schedule_->name(), view.members.size(), error.what());
    found = schedule_;
  }
  return found;
}

void Core::next_turn(Turn& turn) {
  const std::lock_guard lock(mutex_);
  const Step number = started_++;
  turn.step = step_++;
  turn.schedule = schedule_hash_;
  if (!reweighting()) {
    fabric->board().announce(number);
    turn.epoch = 0;
    schedule_->exchange(turn.step, rank(), turn.exchange);
    return;
  }
  const auto view = membership.start(number);
  turn.epoch = view->epoch;
  schedule_in(*view)->exchange(turn.step, rank(), turn.exchange);
}

void Core::observe(StepObserver observer) {
  const std::lock_guard lock(mutex_);
  observed_ = static_cast<bool>(observer);
  observer_ = std::move(observer);
}

void Core::record(const StepRecord& record) {
  StepObserver observer;
  {
    const std::lock_guard lock(mutex_);
    observer = observer_;
  }
  if (observer) observer(record);
}

void Core::add_in_flight(const std::shared_ptr<Operation>& operation) {
  const std::lock_guard lock(in_flight_mutex_);
  in_flight_.push_back(operation);
  any_in_flight_ = true;
}

void Core::advance_in_flight(const Operation* except) {
  if (!any_in_flight_.load(std::memory_order_relaxed)) return;
  std::vector<std::shared_ptr<Operation>> live;
  {
    const std::lock_guard lock(in_flight_mutex_);
    std::erase_if(in_flight_, [&](const std::weak_ptr<Operation>& entry) {
      auto operation = entry.lock();
      if (!operation || operation->ended()) return true;
      if (operation.get() != except) live.push_back(std::move(operation));
      return false;
    });
    any_in_flight_ = !in_flight_.empty();
  }
  for (const auto& operation : live) operation->advance_if_idle();
}

}  // namespace starling
