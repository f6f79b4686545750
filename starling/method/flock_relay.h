#pragma once

#include <vector>

#include "starling/flock/flock.h"
#include "starling/method/channel.h"

namespace starling::method {

/// The relay of one block on a flock.
class FlockRelay final : public RelayChannel {
 public:
  FlockRelay(Flock flock, const std::string& name, const SchedulePtr& tree, const RelayRule& rule);

  void start(Piece piece) override { pending_.push_back(relay_.start(piece)); }
  void set_reference(ConstBuffer x) override { relay_.set_reference(x); }
  std::vector<ChannelMemory> memory() override;
  void remember(const std::vector<ChannelMemory>& memory) override;

  // Called by the channel.

  bool busy() const { return !pending_.empty(); }
  bool ready();
  void await();
  void finish();

 private:
  Relay relay_;
  std::vector<Pending> pending_;
};

}  // namespace starling::method
