#include "starling/flock/rounds.h"

#include "starling/flock/neighbor_average.h"
#include "starling/flock/pending.h"

namespace starling {

Exchanging& Exchanging::operator=(Exchanging&& other) noexcept {
  std::swap(operation_, other.operation_);
  return *this;
}

Exchanging::~Exchanging() {
  if (!operation_) return;
  // The pieces are read only to be sent, which has happened: nobody needs to wait but in a group.
  try {
    operation_->give_back();
  } catch (...) {
    // Only a forked child, which has nothing to wait for, gets here.
  }
}

bool Exchanging::ready() {
  return !operation_ || operation_->look();
}

void Exchanging::wait() {
  if (!operation_) return;
  operation_->wait_until(Deadline::max());
  operation_->raise();
}

std::span<const Term> Exchanging::terms(std::size_t piece) const {
  return operation_->terms(piece);
}

std::uint32_t Exchanging::epoch() const {
  return operation_->epoch();
}

struct Rounds::State {
  std::shared_ptr<Core> core;
  Topic& topic;
  Course course;
};

Rounds::Rounds(const std::shared_ptr<Core>& core, const SchedulePtr& schedule, const Name& name)
    : state_(std::make_shared<State>(State{core, core->topic(name), {}})) {
  core->set_course(state_->course, schedule, Course::Blocks::any);
}

Exchanging Rounds::start(Pieces pieces, Outgoing memory) {
  Core& core = *state_->core;
  core.hub->enter();
  Core::Turn turn;
  core.next_turn(state_->course, turn);
  const bool lanes = mixing() == Mixing::two_block;
  auto operation = std::make_shared<NeighborAverage>(state_->core, state_->topic, std::move(turn),
                                                     std::move(pieces), std::move(memory), lanes);
  operation->start();
  if (operation->has_phases() && !operation->ended()) core.hub->add_in_flight(operation);
  return Exchanging(operation);
}

Exchange Rounds::next() const {
  return state_->core->peek(state_->course);
}

Step Rounds::step() const {
  return state_->core->step_of(state_->course);
}

void Rounds::set_step(Step step) {
  state_->core->set_step(state_->course, step);
}

Mixing Rounds::mixing() const {
  return schedule()->mixing();
}

SchedulePtr Rounds::schedule() const {
  return state_->core->schedule_of(state_->course);
}

}  // namespace starling
