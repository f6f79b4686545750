#pragma once

#include "starling/flock/collective.h"

namespace starling::flock {

/// All members get the root's blocks. Each member also sends its choice of root to all others, in a message
/// without payload: different roots are an error on all ranks instead of a hang.
class Broadcast final : public Collective {
 public:
  Broadcast(std::shared_ptr<FlockState> flock, Topic& topic, Pieces pieces, Rank root)
      : Collective(MessageKind::broadcast, std::move(flock), topic, pieces[0].in.memory),
        pieces_(std::move(pieces)),
        root_(root) {
    if (all_floating(pieces_)) leave_payloads_to_device(memory());
  }

 private:
  void begin() override;
  bool go_on() override;
  void deliver() override;

  Pieces pieces_;
  Rank root_;
  std::vector<Arrival> arrivals_;
};

/// Receives one message from one rank.
class Receive final : public Operation {
 public:
  Receive(std::shared_ptr<FlockState> flock, Topic& topic, Buffer block, Rank source);

 private:
  void proceed() override;
  Loss lose(const Awaited&) override { return Loss::raise; }  // nothing can replace the message

  Buffer block_;
};

}  // namespace starling::flock
