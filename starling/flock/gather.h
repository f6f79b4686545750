#pragma once

#include "starling/flock/collective.h"

namespace starling::flock {

/// Gathers all members' elements one after another, in rank order; lengths may differ.
class GatherAll final : public Collective {
 public:
  GatherAll(std::shared_ptr<FlockState> flock, Topic& topic, ConstBuffer in, Room room)
      : Collective(MessageKind::gathering, std::move(flock), topic, in.memory),
        in_(in),
        room_(std::move(room)) {
    if (is_floating(in.dtype)) leave_payloads_to_device(memory());
  }

 private:
  void begin() override;
  bool go_on() override;
  void deliver() override;

  ConstBuffer in_;
  Room room_;
  std::vector<Arrival> arrivals_;
};

/// Gathers the elements of this step's sources one after another, in the order of the schedule, without the
/// caller's own.
class GatherNeighbors final : public Operation {
 public:
  GatherNeighbors(std::shared_ptr<FlockState> flock, Topic& topic, StepPlan plan, ConstBuffer in, Room room)
      : Operation(MessageKind::neighbor_gathering, std::move(flock), topic,
                  plan.over ? std::optional(plan.step) : std::nullopt, in.memory),
        plan_(std::move(plan)),
        in_(in),
        room_(std::move(room)) {
    step_in_messages_ = plan_.step_in_messages();
    if (is_floating(in.dtype)) leave_payloads_to_device(in.memory);
  }

  void start();

 private:
  void proceed() override;

  StepPlan plan_;
  ConstBuffer in_;
  Room room_;
};

}  // namespace starling::flock
