#pragma once

#include <memory>
#include <optional>

#include "starling/flock/flock.h"
#include "starling/method/channel.h"

namespace starling::method {

/// A flock's window, behind the interface that methods use.
class FlockOneSided final : public OneSided {
 public:
  /// Every rank makes it, with the same name.
  FlockOneSided(Flock flock, const std::string& name, Buffer block, Start start, const SchedulePtr& schedule);

  void put(const Weights& destinations, double self_weight) override;
  void accumulate(const Weights& destinations, double self_weight) override;
  void update(double self_weight, const Weights& sources, bool reset) override;
  void load(Buffer out) override { window_.load(out); }
  void store(ConstBuffer value) override { window_.store(value); }
  void add(ConstBuffer increment) override { window_.add(increment); }
  void average_with(Rank other, ConstBuffer mine, double weight, Buffer moved) override {
    window_.average_with(other, mine, weight, moved);
  }
  double p() const override { return window_.p(); }
  void set_p(double p) override { window_.set_p(p); }
  void clear() override { window_.clear(); }
  bool alive(Rank neighbor) const override { return window_.alive(neighbor); }
  std::vector<Rank> sources() const override { return window_.sources(); }
  std::vector<Rank> destinations() const override { return window_.destinations(); }

  Window& window() { return window_; }

  /// Makes wait() wait until all live sources have made `steps` steps.
  void await_progress(Step steps) { awaited_ = steps; }
  bool awaits() const { return awaited_ > 0; }
  bool caught_up() { return !slowest(); }
  /// Throws PeerLost if peer failures are errors, TimedOut after the flock's timeout.
  void wait();

 private:
  /// A live source that has not made the awaited steps yet.
  std::optional<Rank> slowest();

  Flock flock_;
  Window window_;
  Step awaited_ = 0;
};

/// The window of one block on a flock, created with its first use.
class FlockOneSidedChannel final : public OneSidedChannel {
 public:
  FlockOneSidedChannel(Flock flock, std::string name, SchedulePtr schedule)
      : flock_(std::move(flock)), name_(std::move(name)), schedule_(std::move(schedule)) {}

  OneSided& window(Buffer block, OneSided::Start start) override;
  void set_progress(Step steps) override { window_->window().set_progress(steps); }
  void await_progress(Step steps) override { window_->await_progress(steps); }

  // Called by the channel.

  bool has_window() const { return window_ != nullptr; }
  bool busy() const { return window_ && window_->awaits(); }
  bool ready() { return !window_ || window_->caught_up(); }
  void await() {
    if (window_) window_->wait();
  }
  void clear() {
    if (window_) window_->clear();
  }
  Staleness staleness() const { return window_->window().staleness(); }

 private:
  Flock flock_;
  const std::string name_;
  const SchedulePtr schedule_;
  std::unique_ptr<FlockOneSided> window_;
};

}  // namespace starling::method
