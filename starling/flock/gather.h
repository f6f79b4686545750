#pragma once

#include "starling/flock/collective.h"

namespace starling {

/// All members' elements one after another, in rank order; lengths may differ.
class GatherAll final : public Collective {
 public:
  GatherAll(std::shared_ptr<Core> core, Topic& topic, ConstBlock in, Room room)
      : Collective(MessageKind::gathering, std::move(core), topic), in_(in), room_(std::move(room)) {}

 private:
  void begin() override;
  bool go_on() override;
  void deliver() override;

  ConstBlock in_;
  Room room_;
  std::vector<Arrival> arrivals_;
};

/// The elements of this step's sources one after another, in the order of the schedule, without one's own.
class GatherNeighbors final : public Operation {
 public:
  GatherNeighbors(std::shared_ptr<Core> core, Topic& topic, Core::Turn turn, ConstBlock in, Room room)
      : Operation(MessageKind::neighbor_gathering, std::move(core), topic, turn.step),
        turn_(std::move(turn)),
        in_(in),
        room_(std::move(room)) {
    step_in_messages_ = turn_.step_in_messages();
    has_step_ = turn_.over != nullptr;
  }

  void start();

 private:
  void proceed() override;

  Core::Turn turn_;
  ConstBlock in_;
  Room room_;
};

}  // namespace starling
