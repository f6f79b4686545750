#pragma once

#include "starling/flock/collective.h"

namespace starling {

/// Everybody gets what the root holds. Everybody also tells everybody which root it means, a header without
/// bytes: different roots are an error on all instead of a hang.
class Broadcast final : public Collective {
 public:
  Broadcast(std::shared_ptr<Core> core, Topic& topic, Pieces pieces, Rank root)
      : Collective(MessageKind::broadcast, std::move(core), topic), pieces_(std::move(pieces)), root_(root) {}

 private:
  void begin() override;
  bool go_on() override;
  void deliver() override;

  Pieces pieces_;
  Rank root_;
  std::vector<Arrival> arrivals_;
};

/// One message from one rank.
class Receive final : public Operation {
 public:
  Receive(std::shared_ptr<Core> core, Topic& topic, MutableBlock block, Rank source);

 private:
  void proceed() override;
  Loss lose(const Awaited&) override { return Loss::raise; }  // nothing can stand in for it

  MutableBlock block_;
};

}  // namespace starling
