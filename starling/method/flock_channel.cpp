#include "starling/method/flock_channel.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <optional>

#include "starling/base/error.h"
#include "starling/method/flock_collective.h"
#include "starling/method/flock_neighbors.h"
#include "starling/method/flock_one_sided.h"
#include "starling/method/flock_relay.h"

namespace starling::method {
namespace {

class FlockChannel final : public Channel {
 public:
  FlockChannel(const Flock& flock, const std::string& name, const ChannelOptions& options)
      : flock_(flock), schedule_(options.schedule), collective_(flock, name, options.message) {
    if (!options.call.empty()) {
      call_ = std::make_shared<UserCall>();
      call_->call = options.call;
      call_->part = options.part;
      call_->same_step = options.same_step;
      flock_.set_user_call(name, call_);
    }
    if (options.relay)
      relay_.emplace(flock_, name, *schedule_, options.relay);
    else if (schedule_)
      neighbors_.emplace(flock_, name, options);
    if (schedule_) one_sided_.emplace(flock_, name, schedule_);
  }

  Rank rank() const override { return flock_.rank(); }
  Rank size() const override { return flock_.size(); }
  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  SchedulePtr schedule() const override { return schedule_; }
  NeighborChannel* neighbors() override { return neighbors_ ? &*neighbors_ : nullptr; }
  CollectiveChannel& collective() override { return collective_; }
  OneSidedChannel* one_sided() override { return one_sided_ ? &*one_sided_ : nullptr; }
  RelayChannel* relay() override { return relay_ ? &*relay_ : nullptr; }

  bool busy() const override {
    return (neighbors_ && neighbors_->busy()) || (one_sided_ && one_sided_->busy()) ||
           (relay_ && relay_->busy()) || collective_.busy();
  }

  bool ready() override {
    return !(one_sided_ && !one_sided_->ready()) && collective_.ready() && !(relay_ && !relay_->ready()) &&
           !(neighbors_ && !neighbors_->ready());
  }

  void wait() override {
    if (!ready()) wait_measured();
    if (one_sided_) one_sided_->await();
    collective_.finish();
    if (relay_) relay_->finish();
    if (neighbors_) neighbors_->finish();
  }
  double waited() const override { return waited_; }

  void note_age(Step age) override { ages_.add(age); }
  Staleness staleness() const override {
    return one_sided_ && one_sided_->has_window() ? one_sided_->staleness() : ages_;
  }
  void note_step(Step step) override {
    if (call_) call_->step.store(step, std::memory_order_relaxed);
  }
  void abandon_messages() override {
    if (one_sided_) one_sided_->clear();
    collective_.abandon_average();
  }

 private:
  void wait_measured() {
    const auto from = std::chrono::steady_clock::now();
    if (one_sided_) one_sided_->await();
    collective_.await();
    if (relay_) relay_->await();
    if (neighbors_) neighbors_->await();
    waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  }

  Flock flock_;
  const SchedulePtr schedule_;
  std::shared_ptr<UserCall> call_;
  FlockCollective collective_;
  std::optional<FlockNeighbors> neighbors_;
  std::optional<FlockOneSidedChannel> one_sided_;
  std::optional<FlockRelay> relay_;
  Staleness ages_;
  double waited_ = 0;
};

// Whether a round takes a group's mean and passes it on, so that it would be rounded on the way.
bool has_two_phases(const Schedule& schedule) {
  constexpr Step kMostSteps = 1024;
  const Step steps = std::clamp<Step>(schedule.period(), 1, kMostSteps);
  for (Step step = 0; step < steps; ++step) {
    const Exchange exchange = schedule.exchange(step, 0);
    if (exchange.group.size() > 1 && !exchange.sources.empty()) return true;
  }
  return false;
}

}  // namespace

ChannelPtr make_flock_channel(const Flock& flock, const std::string& name, const ChannelOptions& options) {
  if (options.message != DType::float32 && options.relay)
    throw InvalidArgument("relayed sums would gather the rounding of " + starling::name(options.message) +
                          " messages; use float32");
  if (options.message != DType::float32 && options.schedule && has_two_phases(*options.schedule))
    throw InvalidArgument(
        fmt::format("{} passes on means within groups, which {} messages would round; use float32",
                    options.schedule->name(), starling::name(options.message)));
  // Refuses types that messages cannot have, also where the method has no neighbors.
  if (options.message != DType::float32) make_short_form(options.message, options.ends);
  return std::make_unique<FlockChannel>(flock, name, options);
}

}  // namespace starling::method
