#pragma once

#include "starling/flock/flock.h"
#include "starling/method/one_sided.h"

namespace starling {

/// A window of a flock, as methods use it.
class FlockOneSided final : public OneSided {
 public:
  /// Made by every rank, under the same name.
  FlockOneSided(Flock flock, const std::string& name, MutableBlock block, Start start,
                const SchedulePtr& schedule);

  void put(const Weights& destinations, double self_weight) override;
  void accumulate(const Weights& destinations, double self_weight) override;
  void update(double self_weight, const Weights& sources, bool reset) override;
  void load(void* out) override { window_.load(out); }
  void store(const void* value) override { window_.store(value); }
  void add(const void* increment) override { window_.add(increment); }
  void meet(Rank other, const void* mine, double weight, void* moved) override {
    window_.meet(other, mine, weight, moved);
  }
  double p() const override { return window_.p(); }
  void set_p(double p) override { window_.set_p(p); }
  void clear() override { window_.clear(); }
  bool alive(Rank neighbor) const override { return window_.alive(neighbor); }
  std::vector<Rank> sources() const override { return window_.sources(); }
  std::vector<Rank> destinations() const override { return window_.destinations(); }

  Window& window() { return window_; }

  /// All sources shall have made so many steps; the dead are not waited for.
  void await_progress(Step steps) { awaited_ = steps; }
  bool awaits() const { return awaited_ > 0; }
  bool caught_up() { return !slowest(); }
  /// Throws PeerLost where the others do not go on without the dead, TimedOut after the flock's timeout.
  void wait();

 private:
  /// A living source that has not made the steps that are awaited.
  std::optional<Rank> slowest();

  Flock flock_;
  Window window_;
  Step awaited_ = 0;
};

}  // namespace starling
