#include "starling/flock/neighbor_exchanger.h"

#include "starling/flock/flock_state.h"
#include "starling/flock/neighbor_average.h"
#include "starling/flock/pending.h"

namespace starling::flock {

PendingExchange& PendingExchange::operator=(PendingExchange&& other) noexcept {
  std::swap(operation_, other.operation_);
  return *this;
}

PendingExchange::~PendingExchange() {
  if (!operation_) return;
  // The pieces are read only to be sent, which has happened: nobody needs to wait but in a group.
  try {
    operation_->give_back();
  } catch (...) {
    // Only a forked child, which has nothing to wait for, gets here.
  }
}

bool PendingExchange::ready() {
  return !operation_ || operation_->look();
}

void PendingExchange::wait() {
  if (!operation_) return;
  operation_->wait_until(Deadline::max());
  operation_->raise();
}

std::span<const Term> PendingExchange::terms(std::size_t piece) const {
  return operation_->terms(piece);
}

std::uint32_t PendingExchange::epoch() const {
  return operation_->epoch();
}

struct NeighborExchanger::State {
  std::shared_ptr<FlockState> flock;
  Topic& topic;
  ScheduleCursor cursor;
};

NeighborExchanger::NeighborExchanger(const std::shared_ptr<FlockState>& flock, const SchedulePtr& schedule,
                                     const Name& name)
    : state_(std::make_shared<State>(State{flock, flock->topic(name), {}})) {
  flock->set_cursor(state_->cursor, schedule, ScheduleCursor::Blocks::any);
}

PendingExchange NeighborExchanger::start(Pieces pieces, Outgoing memory) {
  FlockState& flock = *state_->flock;
  flock.runtime->enter();
  StepPlan plan;
  flock.plan_next_step(state_->cursor, plan);
  const bool lanes = mixing() == Mixing::two_block;
  auto operation = std::make_shared<NeighborAverage>(state_->flock, state_->topic, std::move(plan),
                                                     std::move(pieces), std::move(memory), lanes);
  operation->start();
  if (operation->has_phases() && !operation->ended()) flock.runtime->add_in_flight(operation);
  return PendingExchange(operation);
}

Exchange NeighborExchanger::next() const {
  return state_->flock->peek(state_->cursor);
}

Step NeighborExchanger::step() const {
  return state_->flock->step_of(state_->cursor);
}

void NeighborExchanger::set_step(Step step) {
  state_->flock->set_step(state_->cursor, step);
}

Mixing NeighborExchanger::mixing() const {
  return schedule()->mixing();
}

SchedulePtr NeighborExchanger::schedule() const {
  return state_->flock->schedule_of(state_->cursor);
}

}  // namespace starling::flock
