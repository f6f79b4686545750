#include "starling/topology/every.h"

#include <fmt/format.h>

#include "starling/base/error.h"

namespace starling {
namespace {

class Every final : public Schedule {
 public:
  Every(SchedulePtr inner, Step every) : Schedule(inner->size()), inner_(std::move(inner)), every_(every) {
    set_name(fmt::format("every({},{})", every_, inner_->name()));
  }
  Step period() const override { return inner_->period() * every_; }
  bool random() const override { return inner_->random(); }
  Mixing mixing() const override { return inner_->mixing(); }

 private:
  void fill(Step step, Rank rank, Exchange& out) const override {
    if (step % every_ == every_ - 1) inner_->exchange(step / every_, rank, out);
  }

  SchedulePtr inner_;
  Step every_;
};

}  // namespace

std::shared_ptr<Schedule> every_schedule(SchedulePtr schedule, Step every) {
  if (every < 1) throw InvalidArgument(fmt::format("every {} steps: at least 1", every));
  return std::make_shared<Every>(std::move(schedule), every);
}

}  // namespace starling
