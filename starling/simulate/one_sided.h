#pragma once

#include <deque>
#include <map>

#include "starling/flock/block.h"
#include "starling/method/one_sided.h"

namespace starling::simulate {

class SimulatedChannel;

/// A node's window: deposits become visible when the receiver's clock has reached their arrival time.
class SimulatedOneSided final : public OneSided {
 public:
  SimulatedOneSided(SimulatedChannel& channel, Buffer block, Start start);

  void put(const Weights& destinations, double self_weight) override;
  void accumulate(const Weights& destinations, double self_weight) override;
  void update(double self_weight, const Weights& sources, bool reset) override;
  void load(Buffer out) override;
  void store(ConstBuffer value) override;
  void add(ConstBuffer increment) override;
  void average_with(Rank other, ConstBuffer mine, double weight, Buffer moved) override;
  double p() const override { return p_; }
  void set_p(double p) override { p_ = p; }
  void clear() override;
  bool alive(Rank) const override { return true; }
  std::vector<Rank> sources() const override { return sources_; }
  std::vector<Rank> destinations() const override { return destinations_; }

 private:
  struct Value {
    std::vector<std::byte> bytes;
    double p = 0;
    Step stamp = 0;
  };
  struct Deposit {
    double arrival = 0;
    bool add = false;
    Value value;
  };
  struct Slot {
    bool full = false;
    Value value;
    std::deque<Deposit> under_way;
  };

  void deposit(const Weights& destinations, bool add);
  void keep_share(double self_weight);
  /// Applies all deposits that have arrived by now.
  void take_in(Slot& slot);

  SimulatedChannel& channel_;
  Buffer block_;
  double p_ = 1;
  std::vector<Rank> sources_;
  std::vector<Rank> destinations_;
  std::map<Rank, Slot> slots_;
  Value shared_;
};

}  // namespace starling::simulate
